package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// A gpuTable has bandwidths of each GPU by each NIC, main memory beside, and the proof.
type gpuTable struct {
	Title    string
	Emulated bool
	// Grid has bandwidths one way, by memory and NIC.
	Heads []string
	Grid  [][]string
	// Rows are all figures with their proof. Columns are the heads.
	Columns []string
	Rows    [][]string
	Notes   []string
}

// A gpuPlace is main memory if gpu is -1.
type gpuPlace struct{ nic, gpu int }

type gpuFigures struct {
	one, both      []float64 // Gb/s, of the repeats
	failed         [2]bool   // one way, both ways
	proof          bench.VRAM
	proven, absent bool // some samples have a proof, some not
	runs           []string
}

// gpuTables needs a test that names both a GPU and a NIC.
func gpuTables(d record.Record) []gpuTable {
	var pairs []pair
	all := map[pair]map[gpuPlace]*gpuFigures{}
	withGPU := map[pair]bool{}
	for _, s := range d.Samples {
		e, err := tool.EngineByName(s.Test)
		if err != nil {
			continue
		}
		nic, ok := e.NIC()
		// A staged test moves main memory, and is slower than it by the copies.
		staged := slices.Contains(strings.Split(s.Test, "/"), "staged")
		if !ok || staged || fault(s) == "" && s.Metric != bench.MetricBWAverage {
			continue
		}
		at := gpuPlace{nic, -1}
		if number, has := e.GPU(); has {
			at.gpu, _ = strconv.Atoi(number)
		}
		p := pair{s.Client, s.Server, s.Emulated || d.Emulated}
		if all[p] == nil {
			pairs, all[p] = append(pairs, p), map[gpuPlace]*gpuFigures{}
		}
		withGPU[p] = withGPU[p] || at.gpu >= 0
		if all[p][at] == nil {
			all[p][at] = &gpuFigures{}
		}
		all[p][at].add(s, e.Traffic().Both)
	}
	pairs = slices.DeleteFunc(pairs, func(p pair) bool { return !withGPU[p] })
	return lists.Map(pairs, func(p pair) gpuTable {
		t := newGPUTable(p, all[p], d.GPUPaths)
		for _, f := range d.Environment {
			if f.Key == record.FactModelled {
				t.Notes = append(t.Notes, "Rates by path are modelled: "+f.Value+".")
			}
		}
		return t
	})
}

func (f *gpuFigures) add(s bench.Sample, both bool) {
	if why := fault(s); why != "" {
		f.failed[boolIndex(both)] = true
		return
	}
	if both {
		f.both = append(f.both, s.Value)
	} else {
		f.one = append(f.one, s.Value)
	}
	switch {
	case s.VRAM == nil:
		f.absent = true
	case !slices.Contains(f.runs, s.Run): // sizes of a run share its proof
		f.runs, f.proven = append(f.runs, s.Run), true
		for _, m := range []struct{ to, from *bench.Moved }{{&f.proof.Client, &s.VRAM.Client},
			{&f.proof.Server, &s.VRAM.Server}} {
			m.to.Written, m.to.Read = m.to.Written+m.from.Written, m.to.Read+m.from.Read
			m.to.Received, m.to.Sent = m.to.Received+m.from.Received, m.to.Sent+m.from.Sent
		}
	}
}

func boolIndex(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (f *gpuFigures) figure(both bool) string {
	if f == nil {
		return "-"
	}
	values := f.one
	if both {
		values = f.both
	}
	switch {
	case len(values) > 0:
		return show.Number(bench.Median(values), 4, 2)
	case f.failed[boolIndex(both)]:
		return failedWord
	}
	return "-"
}

func newGPUTable(p pair, all map[gpuPlace]*gpuFigures, paths []record.GPUPath) gpuTable {
	var nics, gpus []int
	for at := range all {
		nics, gpus = append(nics, at.nic), append(gpus, at.gpu)
	}
	slices.Sort(nics)
	slices.Sort(gpus)
	nics, gpus = slices.Compact(nics), slices.Compact(gpus)
	path := func(gpu, nic int) string { // "PIX, SYS" if the nodes differ
		var found []string
		for _, g := range paths {
			if (g.Node == p.Client || g.Node == p.Server) && g.GPU == gpu && g.NIC == nic && g.Path != "" {
				found = lists.Add(found, g.Path)
			}
		}
		return strings.Join(found, ", ")
	}
	t := gpuTable{Title: "GPUs by NICs, " + p.String(), Emulated: p.Emulated, Heads: []string{"memory"},
		Columns: []string{"NIC", "memory", "path", "one way", "both ways", "into VRAM", "out of VRAM", "received"}}
	for _, nic := range nics {
		t.Heads = append(t.Heads, nicName(p, nic, paths))
	}
	proven, absent := false, false
	for _, gpu := range gpus {
		row := []string{memoryName(gpu)}
		for _, nic := range nics {
			row = append(row, strings.TrimSpace(path(gpu, nic)+" "+all[gpuPlace{nic, gpu}].figure(false)))
		}
		t.Grid = append(t.Grid, row)
	}
	for _, nic := range nics {
		for _, gpu := range gpus {
			f := all[gpuPlace{nic, gpu}]
			if f == nil {
				continue
			}
			row := []string{nicName(p, nic, paths), memoryName(gpu), orDash(path(gpu, nic)), f.figure(false),
				f.figure(true)}
			proven, absent = proven || f.proven, absent || f.absent
			if f.proven {
				row = append(row, words.Bytes(f.proof.Client.Written+f.proof.Server.Written),
					words.Bytes(f.proof.Client.Read+f.proof.Server.Read),
					words.Bytes(f.proof.Client.Received+f.proof.Server.Received))
			} else {
				row = append(row, "-", "-", "-")
			}
			t.Rows = append(t.Rows, row)
		}
	}
	t.Notes = []string{"One way and both ways are averages in Gb/s; both ways is the sum of the two."}
	if proven {
		t.Notes = append(t.Notes, "Into and out of VRAM: bytes that the NICs of both nodes have written to and read "+
			"from "+
			"the memory of this GPU, by the count of the emulation; beside main memory, from the memory of any GPU. "+
			"Received: bytes of both RDMA devices, by the counters of the nodes' own driver, with headers.")
	}
	if absent {
		t.Notes = append(t.Notes, "No count proves the figures with a dash.")
	}
	if rates := modelledRates(paths); rates != "" {
		t.Notes = append(t.Notes, "Modelled: the NICs reach GPUs no faster than the profile of the nodes says, "+
			"by path: "+
			rates+".")
	}
	return t
}

func memoryName(gpu int) string {
	if gpu < 0 {
		return "main memory"
	}
	return fmt.Sprintf("GPU %d", gpu)
}

func nicName(p pair, nic int, paths []record.GPUPath) string {
	for _, g := range paths {
		if g.NIC == nic && (g.Node == p.Client || g.Node == p.Server) && g.Name != "" {
			name, _, _ := strings.Cut(g.Name, ",")
			return name
		}
	}
	return fmt.Sprintf("NIC %d", nic)
}

// withoutGPUTable drops the figures of gpuTables. Failures and judgements of hardware stay.
func withoutGPUTable(d record.Record) record.Record {
	shown := func(test string) bool {
		e, err := tool.EngineByName(test)
		if err != nil {
			return false
		}
		_, ok := e.NIC()
		return ok
	}
	d.Samples = slices.DeleteFunc(slices.Clone(d.Samples), func(s bench.Sample) bool {
		return fault(s) == "" && shown(s.Test)
	})
	d.Judgements = slices.DeleteFunc(slices.Clone(d.Judgements), func(j expect.Judgement) bool {
		return (j.Emulated || d.Emulated) && shown(j.Test)
	})
	return d
}

func (t *terminal) gpuTables(d record.Record) bool {
	all := gpuTables(d)
	for _, g := range all {
		t.print(g.Title+", one way, Gb/s", g.Emulated, show.Ruled(g.Heads, g.Grid))
		t.print(g.Title+", all figures", g.Emulated, show.Ruled(g.Columns, g.Rows))
		for _, note := range g.Notes {
			t.Wrap("", "", note)
		}
	}
	return len(all) > 0
}

func (g gpuTable) grid() show.MarkdownTable { return show.MarkdownTable{Heads: g.Heads, Rows: g.Grid} }

func (g gpuTable) rows() show.MarkdownTable {
	return show.MarkdownTable{Heads: g.Columns, Rows: g.Rows}
}

func modelledRates(paths []record.GPUPath) string {
	paths = slices.Clone(paths)
	slices.SortStableFunc(paths, func(a, b record.GPUPath) int { return cmp.Compare(b.ModelledBits, a.ModelledBits) })
	var all []string
	for _, g := range paths {
		if g.ModelledBits > 0 {
			all = lists.Add(all, g.Path+" "+words.Rate(float64(g.ModelledBits)))
		}
	}
	return strings.Join(all, ", ")
}
