package importer

import (
	"bytes"
	"regexp"

	"github.com/rackless/rackless/bench"
)

// fioFormat is of fio, whose text may have its JSON in it.
var fioFormat = logFormat{name: Fio, head: fioHead, json: fioJSON, read: several(Fio, bench.ParseFio, fioDrive),
	start: regexp.MustCompile(`(?m)^(?:\S.*: \(g=0\): rw=|\{\s*"fio version")`), sides: fioSides}

var (
	fioHead = regexp.MustCompile(`(?m)^(?:\S.*: \(groupid=\d+, jobs=\d+\): err=|fio-\d[\w.-]*$|\{\s*"fio version")`)
	fioJSON = regexp.MustCompile(`^\{\s*"fio version"`)
	// fioDisk matches a drive that fio wrote to, in its statistics of disks.
	fioDisk = regexp.MustCompile(`(?m)^ +(nvme\w+): ios=|"name" ?: ?"(nvme\w+)"`)
)

// fioDrive says which drive fio wrote to, where it was one.
func fioDrive(log []byte) (at Where) {
	if disks := fioDisk.FindAllSubmatch(log, 2); len(disks) == 1 {
		at.Device = string(disks[0][1]) + string(disks[0][2])
	}
	return at
}

// fioSides tells whether b goes on with the run of a: all jobs are described above their results, and JSON may come
// between the two.
func fioSides(a, _ []byte) bool {
	return !bytes.Contains(a, []byte(": (groupid=")) && !bytes.Contains(a, []byte(`"fio version"`))
}
