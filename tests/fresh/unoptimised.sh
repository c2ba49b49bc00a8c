#!/bin/bash
# Before a compiler's command: what it would compile for speed, it compiles as what hardly runs, which takes half the time, and never
# collects garbage, which takes a tenth less and few MB more. For tests that compile what another has compiled as it is shipped, by the
# same compiler, and look at something else.
exec "${@/#-O3/-Og}" --param=ggc-min-expand=100000
