#!/bin/bash
# Says, each time that it has changed and stays so, where the kernel lets the virtual CPUs of the node run, and which memory it has: "CPUS policy POLICY pages KIB on NODE".
last='' said=''
while sleep 2; do
	pid=$(pgrep -f 'guest=levels.vm00') || continue
	now=$(for t in /proc/"$pid"/task/*; do
		read -r name <"$t/comm" || exit
		[[ $name != CPU* ]] || sed -n "s/^Cpus_allowed_list:\t/${name%/*}: /p" "$t/status"
	done 2>/dev/null | sort | tr '\n' ' '
		# The node's memory is the mapping with the most pages.
		awk '{ n = 0; for (i = 3; i <= NF; i++) if ($i ~ /^N[0-9]+=/) { split($i, a, "="); n += a[2]; on[a[1]] = a[2] }
			size = $NF; sub(/.*=/, "", size)
			if (n * size > most) { most = n * size; policy = $2; page = size; where = ""; for (k in on) if (on[k] * 2 > n) where = k }
			delete on }
			END { if (most > 65536) print "policy", policy, "pages", page, "on", where }' "/proc/$pid/numa_maps" 2>/dev/null)
	# Only whole ones: a node that starts has not all threads yet.
	[[ $now == *:*policy* ]] || continue
	[[ $now != "$last" || $now == "$said" ]] || { echo "$now" && said=$now; }
	last=$now
done
