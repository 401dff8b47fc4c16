package render_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/host/tune"
	"github.com/rackless/rackless/render"
)

func init() { render.Artifacts = host.Artifacts }

// kernelFiles makes files of a kernel with four NUMA nodes, as one that has not been prepared.
func kernelFiles(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"proc/sys/kernel/numa_balancing": "1", "proc/sys/vm/stat_interval": "1", "sys/kernel/mm/ksm/run": "1",
		"sys/devices/virtual/workqueue/cpumask": "ffffffff,ffffffff",
		"proc/irq/default_smp_affinity":         "ffffffff,ffffffff",
		"proc/irq/1/smp_affinity_list":          "0-63", "proc/irq/1/node": "0", "proc/irq/2/smp_affinity_list": "0,32",
		"proc/irq/3/smp_affinity_list": "16-23", "proc/irq/3/node": "2", "proc/irq/4/smp_affinity_list": "24-31",
		"proc/irq/4/node": "3", "run/lock": "",
	}
	for node := range 4 {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-1048576kB/", node)
		files[dir+"nr_hugepages"] = fmt.Sprint(8 * node) // more than is wanted on the last
		files[dir+"free_hugepages"] = "64"               // nobody uses any
	}
	for cpu := range 64 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/", cpu)
		files[dir+"scaling_governor"], files[dir+"energy_performance_preference"] = "schedutil", "balance_power"
	}
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// values reads all files of a kernel. What ops and scripts remember is below run.
func values(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || strings.HasPrefix(name, "run/") || strings.HasPrefix(name, "opt/") {
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = strings.TrimSpace(string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestScriptsAndOpsLeadToTheSameValues makes the changes that need no more than files in two copies
// of a kernel, by the scripts in one and by the ops in the other, and takes them back.
func TestScriptsAndOpsLeadToTheSameValues(t *testing.T) {
	t.Parallel()
	in := render.Example(t)
	artifacts, err := host.Artifacts(in)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := tune.Steps(in.Plan, in.Lab, in.Host, tune.Options{NoReboot: true})
	if err != nil {
		t.Fatal(err)
	}
	scripts := []string{"hugepages", "governor", "irq"}
	steps = slices.DeleteFunc(steps, func(s change.Step) bool { return !slices.Contains(scripts, s.Scripts) })
	// The host of the example is known by a dump that tells no governors.
	steps = append(steps, change.Step{Op: &tune.Governor{}})
	byOps, byScripts := kernelFiles(t), kernelFiles(t)
	before := values(t, byOps)
	run := func(verb string) {
		t.Helper()
		for _, name := range scripts {
			i := slices.IndexFunc(artifacts, func(a render.Artifact) bool { return a.Path == "libexec/"+name+".sh" })
			file := filepath.Join(t.TempDir(), name+".sh")
			if err := os.WriteFile(file, artifacts[i].Data, 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", file, verb)
			cmd.Env = append(os.Environ(), "RACKLESS_ROOT="+byScripts)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s.sh %s: %v\n%s", name, verb, err, out)
			}
		}
	}
	s := &change.System{Root: byOps}
	states := make([]change.State, len(steps))
	for i, step := range steps {
		if states[i], err = step.Op.Read(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := step.Op.Do(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	run("start")
	run("status")
	made := values(t, byOps)
	if diff := cmp.Diff(made, values(t, byScripts)); diff != "" {
		t.Errorf("(-ops +scripts):\n%s", diff)
	}
	if changed := cmp.Diff(before, made); strings.Count(changed, "\n+") < 64 {
		t.Errorf("little is changed:\n%s", changed)
	}
	for i, step := range slices.Backward(steps) {
		if err := step.Op.Restore(t.Context(), s, states[i]); err != nil {
			t.Fatal(err)
		}
	}
	run("stop")
	for name, root := range map[string]string{"ops": byOps, "scripts": byScripts} {
		if diff := cmp.Diff(before, values(t, root)); diff != "" {
			t.Errorf("taken back by %s (-before +after):\n%s", name, diff)
		}
	}
}
