#!/bin/bash
# Before a compiler's command: what it would compile for speed, it compiles as what hardly runs, which takes half the time. For tests
# that compile what another has compiled as it is shipped, by the same compiler, and look at something else.
exec "${@/#-O3/-Og}"
