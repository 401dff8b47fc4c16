set -e
[ -x /usr/sbin/slurmd ] || { echo "Slurm is not installed" >&2; exit 1; }
# The units of the image start what the files are there for. An image of an earlier rackless has other units.
units=--exclude=etc/systemd
[ -e /etc/systemd/system/multi-user.target.d/slurm.conf ] || units=
rm -f /etc/slurm/*.conf /etc/slurm/controller
tar -x -C / $units -f -
[ -n "$units" ] || systemctl daemon-reload
# slurmctld comes first, so that the slurmd beside it need not ask again. Where the controller is another node, it ends.
systemctl restart munge slurmctld slurmd
