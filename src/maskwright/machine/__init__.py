"""The machine: CPU quota of a container, threads of a computation, other processes on the cores."""
