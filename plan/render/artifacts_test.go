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
	"github.com/rackless/rackless/plan/render"
)

func init() { render.Artifacts = host.Artifacts }

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
		files[dir+"nr_hugepages"] = fmt.Sprint(8 * node)
		files[dir+"free_hugepages"] = "64" // all free
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

// values leaves out the state of ops, below run.
func values(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || strings.HasPrefix(name, "run/") {
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

// TestCommandsAndOpsLeadToTheSameValues makes the changes that need only files in two copies of a kernel: by ops, and
// by their commands.
func TestCommandsAndOpsLeadToTheSameValues(t *testing.T) {
	t.Parallel()
	in := render.Example(t)
	steps, err := tune.Steps(in.Plan, in.Lab, in.Host, tune.Options{NoReboot: true})
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"hugepages", "value", "file", "cpumask", "irqs"}
	steps = slices.DeleteFunc(steps, func(s change.Step) bool { return !slices.Contains(files, s.Op.Kind()) })
	// The example's host comes from a dump without governors.
	steps = append(steps, change.Step{Op: &tune.Governor{}})
	byOps, byCommands := kernelFiles(t), kernelFiles(t)
	before := values(t, byOps)
	s := &change.System{Root: byOps}
	for _, step := range steps {
		state, err := step.Op.Read(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if !step.Op.Done(state) {
			if err := step.Op.Do(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		script := strings.Join(step.Commands(), "\n")
		for _, dir := range []string{"/etc/", "/proc/", "/sys/"} {
			script = strings.ReplaceAll(script, " "+dir, " "+byCommands+dir)
			script = strings.ReplaceAll(script, "(cat "+dir, "(cat "+byCommands+dir)
		}
		if out, err := exec.Command("sh", "-e", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s\n%s", step.What, err, script, out)
		}
	}
	made := values(t, byOps)
	if changed := cmp.Diff(before, made); strings.Count(changed, "\n+") < 64 {
		t.Errorf("little is changed:\n%s", changed)
	}
	// The commands also move interrupts that are already on CPUs of the host.
	made["proc/irq/2/smp_affinity_list"] = "0-1,30-33,62-63"
	if diff := cmp.Diff(made, values(t, byCommands)); diff != "" {
		t.Errorf("(-ops +commands):\n%s", diff)
	}
}

// Each kind of op must be on the page of commands.
func TestEveryOpHasCommands(t *testing.T) {
	t.Parallel()
	for kind, op := range host.Kinds() {
		if _, ok := op().(change.Manual); !ok {
			t.Errorf("ops of kind %s have no commands", kind)
		}
	}
}
