package boot

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/host/change"
)

func TestInForceIsWhatTheKernelReadsAndShows(t *testing.T) {
	t.Parallel()
	const cpu = "/sys/devices/system/cpu/"
	tests := []struct {
		name    string
		line    string
		files   map[string]string
		want    bool
		wantErr string
	}{
		{"before the reboot", "ro quiet", nil, false, ""},
		{"a kernel that shows nothing", "ro " + planText, nil, true, ""},
		{"and one that shows all", "ro " + planText, map[string]string{"possible": "0-31\n", "isolated": "2-29\n",
			"nohz_full": "2-29\n"}, true, ""},
		{"more is isolated", "ro " + planText, map[string]string{"isolated": "2-31\n"}, true, ""},
		{"fewer CPUs than the list has", "ro " + planText, map[string]string{"possible": "0-15\n", "isolated": "2-15\n",
			"nohz_full": "2-15\n"}, true, ""},
		{"a part", "ro iommu=pt isolcpus=managed_irq,domain,2-29", nil, false, ""},
		{"another value before it", "isolcpus=1 " + planText, nil, false, ""},
		{"another value after it", planText + " nohz_full=1", nil, false, ""},
		{"behind what is for init", "ro -- " + planText, nil, false, ""},
		{"not isolated", planText, map[string]string{"isolated": "\n"}, false,
			"isolated has \"\", without CPUs 2-29: see what dmesg says of it; another reboot will not help"},
		{"less is isolated", planText, map[string]string{"isolated": "2-20\n"}, false, "without CPUs 21-29"},
		{"nohz_full was not taken", planText, map[string]string{"isolated": "2-29\n", "nohz_full": "  (null)\n"}, false,
			`was started with nohz_full=2-29, and /sys/devices/system/cpu/nohz_full has "(null)"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, map[string]string{"/proc/cmdline": tt.line + "\n"})
			for name, text := range tt.files {
				m.write(cpu+name, text)
			}
			got, err := m.steps()[0].InForce(t.Context(), m.System)
			if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(),
				tt.wantErr) {
				t.Errorf("got %v, %v; want %v, %q", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func TestOnlyCPUsThatTheSchedulerLeavesAloneAreShownAsIsolated(t *testing.T) {
	t.Parallel()
	m := newMachine(t, map[string]string{"/sys/devices/system/cpu/isolated": "\n",
		"/sys/devices/system/cpu/nohz_full": "1-3\n"})
	for arg, ok := range map[string]bool{
		"isolcpus=2": false, "isolcpus=domain,2": false, "isolcpus=managed_irq,domain,2": false,
		"isolcpus=managed_irq,2": true, "isolcpus=nohz,2": true, "iommu=pt": true,
		"nohz_full=0-3": true, // the boot CPU keeps its tick
		"nohz_full=0-4": false,
	} {
		if err := effect(m.System, arg); (err == nil) != ok {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

func TestAfterTheRebootNothingIsLeftToDo(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func() *machine{
		"GRUB": func() *machine {
			return debian(t, debianDefaults)
		}, "entries": func() *machine {
			return fedora(t)
		}, "rpm-ostree": func() *machine { return coreOS(t, "ro quiet") },
	} {
		m := make()
		m.mustMake(change.Boot)
		m.write("/proc/cmdline", "ro "+planText+"\n")
		made := m.tree()
		m.mustMake(change.InPlace)
		m.wantTree(name, made)
	}
}
