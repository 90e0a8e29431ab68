// The exported functions that belong to no kernel: the life of a team, and running a program.
#include <exception>

#include "octavo.h"
#include "team.h"

struct octavo_team {
    octavo_team(int threads, const octavo::Kernels& kernels) : team(threads, kernels) {}
    octavo::Team team;
};

extern "C" {

int32_t octavo_abi(void) { return OCTAVO_ABI; }

octavo_team* octavo_team_create(int32_t threads, const char* isa) {
    const octavo::Kernels* kernels = octavo::best_kernels(isa);
    if (threads < 1 || kernels == nullptr) return nullptr;
    try {
        return new octavo_team(threads, *kernels);
    } catch (const std::exception&) {  // no memory, no thread: nothing may cross the C boundary
        return nullptr;
    }
}

void octavo_team_free(octavo_team* team) { delete team; }

const char* octavo_team_isa(const octavo_team* team) { return team->team.kernels().isa; }

void octavo_run(octavo_team* team, const octavo_op* ops, int32_t count, const octavo_step* step) {
    team->team.run(ops, count, *step);
}

}  // extern "C"
