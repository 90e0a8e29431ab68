// The exported functions of sampling: a program of one op. How a token is drawn is isa/sample.h.
#include "octavo.h"
#include "sample_scratch.h"

extern "C" {

int64_t octavo_sample_scratch(int32_t vocabulary) { return octavo::SampleScratch::bytes(vocabulary); }

void octavo_sample(octavo_team* team, const octavo_sample_batch* batch) {
    octavo_op op{};
    op.kind = OCTAVO_OP_SAMPLE;
    op.rows = batch->draws;
    op.scratch = const_cast<octavo_sample_batch*>(batch);  // read only; what it points to is written
    const octavo_step step{};
    octavo_run(team, &op, 1, &step);
}

}  // extern "C"
