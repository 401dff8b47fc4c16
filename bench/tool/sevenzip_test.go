package tool

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

func TestSevenZipLoadsAllCPUsWithinTheMemoryThatIsLeft(t *testing.T) {
	output := readFile(t, "testdata/7-zip/recorded-26.02-7z-2threads.txt")
	const which = "sh -c command -v 7z || command -v 7zz || command -v 7zr"
	available := func(kb string) bench.Output {
		return bench.Output{Stdout: []byte("MemTotal: 16000000 kB\nMemAvailable:   " + kb + " kB\n")}
	}
	for _, tt := range []struct {
		name string
		opts bench.Options
		lab  cluster
		want string // command or reason
	}{
		{"much memory", bench.Options{}, cluster{"n2 nproc": {Stdout: []byte("2\n")},
			"n2 cat /proc/meminfo": available("9000000"), "n2 7z b -mmt2 -md25": {Stdout: output}}, "7z b -mmt2 -md25"},
		{"half of it is too little for the largest", bench.Options{}, cluster{"n2 nproc": {Stdout: []byte("2\n")},
			"n2 cat /proc/meminfo": available("600000"), "n2 7z b -mmt2 -md24": {Stdout: output}}, "7z b -mmt2 -md24"},
		{"quick", bench.Options{Quick: true}, cluster{"n2 nproc": {Stdout: []byte("2\n")},
			"n2 cat /proc/meminfo": available("9000000"), "n2 7z b -mmt2 -md22": {Stdout: output}}, "7z b -mmt2 -md22"},
		{"an emulated CPU", bench.Options{Accelerator: "tcg"}, cluster{"n2 nproc": {Stdout: []byte("2\n")},
			"n2 cat /proc/meminfo": available("9000000"), "n2 7z b -mmt2 -md22": {Stdout: output}}, "7z b -mmt2 -md22"},
		{"7-Zip by its own name", bench.Options{Quick: true}, cluster{
			"n2 " + which: {Stdout: []byte("/usr/bin/7zz\n")}, "n2 nproc": {Stdout: []byte("2\n")},
			"n2 cat /proc/meminfo": available("9000000"), "n2 7zz b -mmt2 -md22": {Stdout: output},
		}, "7zz b -mmt2 -md22"},
		{"two of many CPUs", bench.Options{CPU: "0,4"}, cluster{
			"n2 taskset -c 0,4 nproc": {Stdout: []byte("2\n")}, "n2 cat /proc/meminfo": available("9000000"),
			"n2 taskset -c 0,4 7z b -mmt2 -md25": {Stdout: output},
		}, "taskset -c 0,4 7z b -mmt2 -md25"},
		{"no program", bench.Options{}, cluster{"n2 " + which: {ExitCode: 127}},
			"attempt 1: n2: 7z is not installed: install 7zip or p7zip-full"},
		{"too little memory", bench.Options{}, cluster{"n2 nproc": {Stdout: []byte("3\n")},
			"n2 cat /proc/meminfo": available("200000")},
			"attempt 1: n2: 7-zip needs 132 MiB for 3 CPUs; half of what is available is 97 MiB"},
		{"another number of threads", bench.Options{}, cluster{"n2 nproc": {Stdout: []byte("4\n")},
			"n2 cat /proc/meminfo": available("9000000"), "n2 7z b -mmt4 -md25": {Stdout: output}},
			`attempt 1: read result of 7-zip, line 29 "Tot:              87   3829   3366": threads: 2, want 4`},
		{"it gave up", bench.Options{}, cluster{
			"n2 nproc": {Stdout: []byte("2\n")}, "n2 cat /proc/meminfo": available("9000000"),
			"n2 7z b -mmt2 -md25": {Stdout: []byte("22: \n"),
				Stderr: []byte("\n\nERROR: Can't allocate required memory!\n"), ExitCode: 8},
		}, "attempt 1: run 7z on n2: exit status 8: ERROR: Can't allocate required memory!"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			samples, err := (&bench.Runner{Exec: serverless{tt.lab}, Accelerator: "kvm",
				Retries: -1}).RunLocal(t.Context(), mustEngine(t, "7zip"), n2, tt.opts)
			if err != nil || len(samples) == 0 {
				t.Fatalf("%d samples, error %v", len(samples), err)
			}
			s := samples[0]
			if strings.HasPrefix(tt.want, "attempt") {
				if s.Error != tt.want {
					t.Errorf("got  %s\nwant %s", s.Error, tt.want)
				}
				return
			}
			if s.Error != "" || s.Command != tt.want || s.Metric != bench.MetricRating || s.Value != 3366 ||
				s.Unit != "MIPS" || s.Version != "26.02" || len(samples) != 3 {
				t.Errorf("got %+v, want %s", s, tt.want)
			}
		})
	}
}

func TestVersionsOfSevenZipAreInItsFirstLine(t *testing.T) {
	for in, want := range map[string]string{
		"\n7-Zip (z) 26.02 (x64) : Copyright (c) 1999-2026 Igor Pavlov\n":          "26.02",
		"\n7-Zip (a) [64] 16.02 : Copyright (c) 1999-2016 Igor Pavlov\n":           "16.02",
		"\r\n7-Zip [64] 26.02 : Copyright\r\np7zip Version 16.02 (locale=C.UTF-8)": "26.02",
		"7-Zip 19.00 (x64)\n": "19.00",
		"bash: 7z: not found": "",
	} {
		if got := mustEngine(t, "7zip").Version(bench.Output{Stdout: []byte(in)}); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
