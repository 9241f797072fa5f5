"""Work for other processes: those of this machine, or the workers of a Dask cluster.

`work` is an executor with two backends and the one handler of lost workers; `cluster_backend` is the one of a cluster,
which `clusters` starts or finds, with TLS alone. `opening` has the hosts of a campaign over it, `worker` the functions
that run over there. Requests are names of functions with text, bytes and numbers, answers are bytes that `calls`
checks, and which with `headless` keeps workers from anything else. Imports everything above the wall but `crash`,
never `analyze` or `report`. Dask belongs to the extra `dask`: `worker`, `headless`, `cluster_backend` and
functions of `clusters` alone import it.
"""
