package tool

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/rackless/rackless/bench"
)

// A job is a scientific program that the nodes of a group run together. Its texts are templates of [runValues].
type job struct {
	// fast is for CPUs under KVM, slow for emulated ones: about 10 s on one CPU.
	fast, slow work
	cube       int // parts of the model in a cube of side 1, if the program prints their number
	names      string
	args       string
	env        []string
	stdin      string
	input      string
	results    string
}

// work is in the program's units; 0 if the program has none.
type work struct{ side, steps int }

func (j *job) of(o bench.Options) work {
	w := j.slow
	if o.Accelerator == "kvm" {
		w = j.fast
	}
	if o.Quick {
		w.steps /= 4
	}
	w.steps = cmp.Or(o.Iterations, w.steps)
	return w
}

func (j *job) check(client bench.Endpoint, o bench.Options) error {
	switch {
	case o.Bytes != 0:
		return errors.New("it has no message sizes")
	case o.Iterations != 0 && j.fast.steps == 0:
		return errors.New("it has no steps")
	case o.Iterations < 0 || o.Iterations > maxIterations:
		return fmt.Errorf("%d steps; give 1 to %d", o.Iterations, maxIterations)
	case o.CPU != "" || o.NUMA != "" || client.Place != (bench.Place{}):
		return errGroupPlace
	}
	return nil
}

func (j *job) program(o bench.Options) bench.Program {
	w := j.of(o)
	v := runValues{Side: w.side, Steps: w.steps, Ranks: max(1, o.Ranks), Rows: 1}
	for n := 2; n*n <= v.Ranks; n++ {
		if v.Ranks%n == 0 {
			v.Rows = n
		}
	}
	v.Columns = v.Ranks / v.Rows
	p := bench.Program{Names: strings.Fields(j.names), Args: strings.Fields(fill(j.args, v)), Env: j.env,
		Input: fill(j.input, v), Results: fill(j.results, v)}
	if j.stdin != "" {
		p.Stdin = []byte(fill(j.stdin, v))
	}
	return p
}
