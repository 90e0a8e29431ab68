// The memory that a worker samples in, carved out of octavo_sample_batch.scratch.
#pragma once

#include <cstdint>

#include "octavo.h"

namespace octavo {

struct Scored {
    double score;
    int32_t id;
};

// A token that a filter may keep: its score, exp of that, and its id.
struct Candidate {
    double score, weight;
    int32_t id;
};

struct SampleScratch {
    Candidate* candidate_V;
    Scored* penalised_V;
    float* row_V;
    int32_t* uses_V;  // all 0 between draws

    static int64_t padded(int64_t vocabulary) { return (vocabulary + 15) / 16 * 16; }

    static int64_t bytes(int64_t vocabulary) {
        return padded(vocabulary) * static_cast<int64_t>(sizeof(Candidate) + sizeof(Scored) + sizeof(float) + sizeof(int32_t));
    }

    static SampleScratch of(void* all, int64_t vocabulary, int worker) {
        SampleScratch s{};
        if (all == nullptr) return s;
        const int64_t room = padded(vocabulary);
        s.candidate_V = reinterpret_cast<Candidate*>(static_cast<char*>(all) + worker * bytes(vocabulary));
        s.penalised_V = reinterpret_cast<Scored*>(s.candidate_V + room);
        s.row_V = reinterpret_cast<float*>(s.penalised_V + room);
        s.uses_V = reinterpret_cast<int32_t*>(s.row_V + room);
        return s;
    }
};

}  // namespace octavo
