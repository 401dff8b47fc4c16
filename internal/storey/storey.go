// Package storey divides tests into "make test" and "make test-e2e", see docs/testing.md.
package storey

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/tally"
)

// Prefix begins the names of the tests of the second storey, so that go test -run finds them.
const Prefix = "TestE2E"

// SeedVariable has the seed of all samples: make test SEED=N sets it.
const SeedVariable = "RACKLESS_SEED"

var (
	second = flag.Bool("e2e", false, "run the tests that only make test-e2e runs, too")
	given  = flag.Int64("seed", -1, "draw the samples of this seed; without it, of "+SeedVariable+", or by chance")
)

// T is the used part of *testing.T: only tests may import package testing.
type T interface {
	tally.T
	Cleanup(f func())
	Failed() bool
	Fatalf(format string, args ...any)
	Skip(args ...any)
	Skipped() bool
}

// E2E skips a test unless -e2e is given, and counts its result.
func E2E(t T) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), Prefix) {
		t.Fatalf("its name has to begin with %s, or make test-e2e does not run it", Prefix)
	}
	if !*second {
		t.Skip("it is one of make test-e2e")
	}
	began := time.Now()
	t.Cleanup(func() {
		result := "passed"
		if t.Skipped() {
			result = "skipped"
		} else if t.Failed() {
			result = "FAILED"
		}
		tally.Logf(t, "%s after %.0f s", result, time.Since(began).Seconds())
	})
}

// Rand prints its seed, which draws the same sample whatever other tests run.
func Rand(t T) *rand.Rand {
	t.Helper()
	return source(Seed(t), t.Name())
}

// Seed returns the seed of Rand for a test that draws its sample elsewhere, such as inside a machine.
func Seed(t T) uint64 {
	t.Helper()
	seed, err := seedOf(*given, os.Getenv(SeedVariable))
	if err != nil {
		t.Fatalf("%v", err)
	}
	tally.Logf(t, "-seed %d draws this sample again", seed)
	return seed
}

func seedOf(flag int64, env string) (uint64, error) {
	switch {
	case flag >= 0:
		return uint64(flag), nil
	case env != "":
		seed, err := strconv.ParseUint(env, 10, 63)
		if err != nil {
			return 0, fmt.Errorf("%s=%s: want a number of 0 or more", SeedVariable, env)
		}
		return seed, nil
	}
	return uint64(rand.Uint32()), nil
}

// source differs between tests, although the seed is the same.
func source(seed uint64, test string) *rand.Rand {
	name := fnv.New64a()
	name.Write([]byte(test))
	return rand.New(rand.NewPCG(seed, name.Sum64()))
}

// Some returns n elements, or all if there are fewer, in their order.
func Some[E any](rng *rand.Rand, list []E, n int) []E {
	drawn := make([]bool, len(list))
	for _, i := range rng.Perm(len(list))[:min(n, len(list))] {
		drawn[i] = true
	}
	var out []E
	for i, e := range list {
		if drawn[i] {
			out = append(out, e)
		}
	}
	return out
}
