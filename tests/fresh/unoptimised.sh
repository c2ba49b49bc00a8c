#!/bin/sh
# Before a compiler's command: without the optimiser, whatever the command says. For tests that compile what another has compiled as it is
# shipped, by the same compiler, and look at something else.
exec "$@" -O0
