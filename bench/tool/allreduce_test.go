package tool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

// A truncated output yields no figures.
func TestAllReducesGiveTheTimesThatTheyPrint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, first, last string }{
		"gloo_all_reduce": {"gloo/recorded-20220518-connectx-tcg.txt", "collective_time 4 0 7404.61 us",
			"collective_time 65536 0 6702.15 us"},
		"ucc_all_reduce": {"ucc/recorded-1.3.0-connectx-tcg.txt", "collective_time 4 0 40.58 us",
			"collective_time 65536 0 14034.4 us"},
	} {
		whole := readFile(t, "testdata/"+c.file)
		e, o := mustEngine(t, name), bench.Options{Accelerator: "tcg", Ranks: 2}
		figures, err := e.ParseOutput(bench.Output{Stdout: whole}, o)
		got := figureWords(figures)
		if err != nil || len(got) != 15 || got[0] != c.first || got[14] != c.last {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
		for n := range whole {
			var bad *bench.BadResultError
			if _, err := e.ParseOutput(bench.Output{Stdout: whole[:n]}, o); !errors.As(err, &bad) {
				t.Fatalf("%s: %d of %d bytes: %v", name, n, len(whole), err)
			}
		}
		p := e.Plugin.(bench.Grouped).Program(bench.Options{Accelerator: "tcg", Ranks: 2, Bytes: 1024, Iterations: 30})
		if !p.Own {
			t.Errorf("%s: %+v", name, p)
		}
		args := strings.Join(p.Args, " ")
		if want := map[string]string{"gloo_all_reduce": "-m 1024:1024 -i 30 -x 3", "ucc_all_reduce": "-c allreduce " +
			"-m host -d float32 -o sum -b 256 -e 256 -n 30 -w 3"}[name]; args != want {
			t.Errorf("%s: %s, want %s", name, args, want)
		}
	}
	lines := strings.SplitAfter(string(readFile(t, "testdata/ucc/recorded-1.3.0-connectx-tcg.txt")), "\n")
	if _, err := parseUCC([]byte(strings.Join(slices.Delete(lines, 20, 21), ""))); err == nil ||
		!strings.Contains(err.Error(), "a row is missing") {
		t.Error(err)
	}
	v := mustEngine(t, "ucc_all_reduce").Version(bench.Output{Stdout: []byte("# UCC version=1.3.0 revision 0c0fc21\n" +
		"mpirun (Open MPI) 4.1.4\n")})
	if v != "1.3.0, Open MPI 4.1.4" {
		t.Error(v)
	}
}

func TestGlooIsLookedFor(t *testing.T) {
	t.Parallel()
	lacks := func(context.Context, string, ...string) (bench.Output, error) { return bench.Output{ExitCode: 1}, nil }
	err := mustEngine(t, "gloo_all_reduce").Plugin.Prepare(t.Context(), lacks, bench.Endpoint{Node: "vm00"},
		bench.Endpoint{}, &bench.Options{})
	if err == nil || !strings.Contains(err.Error(), "vm00: Gloo is not installed: it takes image: debian-12+ai+mpi") {
		t.Error(err)
	}
}
