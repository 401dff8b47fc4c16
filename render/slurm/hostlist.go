package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// HostList writes names as Slurm does: vm[00-03,07],head. Names that differ in a number at their end are gathered where
// they follow one another.
func HostList(names []string) string {
	var out []string
	for i := 0; i < len(names); {
		stem, digits := cut(names[i])
		k := i + 1
		for k < len(names) && digits != "" {
			if s, d := cut(names[k]); s != stem || len(d) != len(digits) {
				break
			}
			k++
		}
		if k == i+1 {
			out = append(out, names[i])
		} else {
			out = append(out, stem+"["+ranges(names[i:k], len(stem))+"]")
		}
		i = k
	}
	return strings.Join(out, ",")
}

// ranges writes the numbers of names behind a stem: 00-03,07.
func ranges(names []string, stem int) string {
	var out []string
	for i := 0; i < len(names); {
		k := i
		for k+1 < len(names) && number(names[k+1][stem:]) == number(names[k][stem:])+1 {
			k++
		}
		if text := names[i][stem:]; k == i {
			out = append(out, text)
		} else {
			out = append(out, fmt.Sprintf("%s-%s", text, names[k][stem:]))
		}
		i = k + 1
	}
	return strings.Join(out, ",")
}

// cut splits a name before the digits at its end. More of them than a number has are part of the name.
func cut(name string) (stem, digits string) {
	stem = strings.TrimRight(name, "0123456789")
	if len(name)-len(stem) > 9 {
		return name, ""
	}
	return stem, name[len(stem):]
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // at most nine digits, see cut
	return n
}
