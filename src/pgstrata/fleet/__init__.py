"""Hosts that are the machines of a Dask cluster, and other work for its workers.

`worker` is what runs over there: functions of this package, called by name with text; `fleet` submits to them and takes
care of workers that are lost; `clusters` starts or finds the cluster, with TLS alone. `work` has pieces of other work
done by processes or, with `cluster_work`, by such workers. What travels is data: JSON and bytes there, and back the
files of a trial, or JSON. Imports everything above the wall, never `analyze` or `report`. Dask belongs to the extra
`dask`, and is imported by `worker`, `quiet`, `fleet`, `cluster_work` and functions of `clusters` alone.
"""
