n=0
while [ $n -lt 600 ]; do
	all=$(sinfo --noheader --Node --format='%N %T' 2>&1) &&
		! echo "$all" | grep -Eqv ' (idle|mixed|allocated|completing)$' && exit 0
	n=$((n + 1))
	sleep 0.2
done
echo "$all"
sinfo --noheader --list-reasons
tail -n 5 /var/log/slurm/slurmctld.log
exit 1
