/* SPDX-License-Identifier: Apache-2.0 */
/* The ckpt program: all of it is in the library, see command.h. */
#include "cli/command.h"

int main(int argc, char **argv)
{
    return ckpt_command(argc, argv);
}
