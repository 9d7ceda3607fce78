// The Python face of the kernels: the only file that knows Python.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "cpu.h"

#define OCTAVO_STRING_OF(x) #x
#define OCTAVO_STRING(x) OCTAVO_STRING_OF(x)
#define OCTAVO_CONCAT_OF(a, b) a##b
#define OCTAVO_CONCAT(a, b) OCTAVO_CONCAT_OF(a, b)

namespace nb = nanobind;

// OCTAVO_ISA is the name of this build, without quotes: baseline, avx2 or avx512 (CMakeLists.txt).
NB_MODULE(OCTAVO_CONCAT(_, OCTAVO_ISA), m) {
    m.attr("isa") = OCTAVO_STRING(OCTAVO_ISA);
    m.def("cpu_supports", &octavo::cpu_supports, nb::arg("isa"),
          "True if this CPU and its operating system can run the build named `isa`; False for an unknown name.");
}
