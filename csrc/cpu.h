// What the CPU we run on can do.

#pragma once

#include <string>

namespace octavo {

// True if this CPU and its operating system can run the build named `isa` (baseline, avx2, avx512, amx,
// neon_dotprod); false for any other name. Compiled into every build, but meant to be asked of the baseline one.
// Asking for amx asks Linux to let this process use it.
bool cpu_supports(const std::string& isa);

}  // namespace octavo
