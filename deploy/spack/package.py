# For Spack: a directory of a repository of your own, <repository>/packages/stagecoach/package.py. There is no archive to
# download yet, so it builds a checkout: `spack dev-build -d <checkout> stagecoach@0.1.0`.
from spack.package import *


class Stagecoach(CMakePackage):
    """One large language model across many CPU machines: each MPI rank is a pipeline stage, and a coordinator keeps
    all of them busy."""

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cli11", type="build")
    depends_on("nlohmann-json@3.11:", type="build")
    depends_on("boost@1.74:", type="build")  # headers alone
    depends_on("openmpi@4.1:")  # its mpirun is the launcher
    depends_on("protobuf@3.21:")
    depends_on("abseil-cpp cxxstd=17")
    depends_on("tbb")
    depends_on("hwloc@2:")
    depends_on("libedit")

    conflicts("%gcc@:11", msg="C++20 as g++ 12 has it")

    generator("ninja")

    def cmake_args(self):
        return [self.define("STAGECOACH_BUILD_TESTS", False)]
