package render

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// libexecDir is where the units look for the scripts. Not in /etc, where nothing is executed, nor
// in /usr, which belongs to the distribution.
func (v *view) libexecDir() string { return "/usr/local/libexec/rackless/" + v.lab }

// unitName returns the name of the unit that runs a script.
func (v *view) unitName(job string) string { return UnitName(v.plan.Lab, "-"+job+".service") }

// hypervisors are the services that start guests: what the guests need has to be there before them.
// A host has one of the two.
const hypervisors = "libvirtd.service virtqemud.service libvirt-guests.service"

// A job is a script that a unit runs at boot.
type job struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"` // of the unit
	Title       string `yaml:"title"`       // on the page that leads through all files
	Note        string `yaml:"note"`
	What        string `yaml:"what"`  // what the script does, for its own header
	Why         string `yaml:"why"`   // of the unit's order
	After       string `yaml:"after"` // beside local-fs.target
	Before      string `yaml:"before"`
}

// jobs returns what is to be done at each boot, in order.
func (v *view) jobs() []job {
	confines := !v.housekeeping().IsEmpty() && !v.given.IsEmpty()
	needed := map[string]bool{"vfio": len(v.whole) > 0, "sriov": v.hasVFs(), "cpuset": confines, "irq": confines,
		"hugepages": true, "governor": true}
	var jobs []job
	for _, j := range allJobs() {
		if needed[j.Name] && len(v.in.Changes[j.Name]) > 0 {
			j.Description = strings.ReplaceAll(j.Description, "LAB", v.plan.Lab)
			j.Note = strings.ReplaceAll(j.Note, "UNIT", v.unitName(j.Name))
			jobs = append(jobs, j)
		}
	}
	return jobs
}

//go:embed jobs.yaml
var jobsFile []byte

// allJobs are in the order in which they are started.
var allJobs = sync.OnceValue(func() []job {
	var all struct {
		Jobs []job `yaml:"jobs"`
	}
	strictyaml.MustParse("jobs.yaml", bytes.ReplaceAll(jobsFile, []byte("HYPERVISORS"), []byte(hypervisors)), &all)
	return all.Jobs
})

// parts are the files of shell/ that a script needs beside those that all have, by the first word
// of its lines. A script has only the parts that it needs, so that a person can read all of it
// before running it as root.
var parts = []struct{ name, words string }{
	{"irqs", "irqs slice"}, {"slices", "slice partition"}, {"pci", "vfio vfs vf"}, {"vfio", "vfio"},
	{"sriov", "vfs vf link rest"}, {"nic", "firmware"},
}

// changesScript returns the script of a name that makes changes of the host and takes them back. It
// remembers in memory/LAB/part how things were, and says after at the end.
func (v *view) changesScript(what, name, memory, part, usage, after string) []byte {
	lines := v.in.Changes[name]
	files := []string{"prologue", "changes"}
	for _, p := range parts {
		words := strings.Fields(p.words)
		if slices.ContainsFunc(lines, func(line string) bool {
			word, _, _ := strings.Cut(line, " ")
			return slices.Contains(words, word)
		}) {
			files = append(files, p.name)
		}
	}
	return shellScript(v.made, what, []shellVar{
		{"lab", v.lab, ""},
		{"changes", strings.Join(lines, "\n"),
			"What is changed, in order: the functions below say what the words are."},
		{"memory", memory, "Below it is remembered how things were."}, {"part", part, ""}, {"usage", usage, ""},
		{"after", after, ""},
	}, append(files, "dispatch")...)
}

// housekeeping returns the CPUs of the host.
func (v *view) housekeeping() topology.CPUSet { return v.plan.Housekeeping.CPUs }

// units returns the scripts and the units that start them. Each job is a unit of its own, so that one that fails names
// itself in systemctl status and does not stop the others.
func (v *view) units() []Artifact {
	var scripts, units []Artifact
	for _, j := range v.jobs() {
		scripts = append(scripts, program("libexec/"+j.Name+".sh", v.changesScript(j.What, j.Name,
			"/run/rackless", j.Name, "start|stop|status", "")))
		units = append(units, text("systemd/"+v.unitName(j.Name), v.unit(j)))
	}
	return append(scripts, units...)
}

// hostFiles returns the configuration of the host that stands beside the scripts: mounts, a drop-in
// for irqbalance, a udev rule and a file for modprobe.
func (v *view) hostFiles() []Artifact {
	files := v.hugepageMounts()
	if !v.given.IsEmpty() {
		files = append(files, text("systemd/irqbalance.service.d/"+UnitName(v.plan.Lab, ".conf"),
			v.page("irqbalance.conf", v.plan)))
	}
	return append(files, v.earlyVFIO()...)
}

// HostFiles returns the files of [All] that configure the host itself, each with the path at which
// it belongs on the host. It needs neither domains nor changes.
func HostFiles(in Input) ([]Artifact, error) {
	v, err := newView(in)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	files := v.hostFiles()
	for i, f := range files {
		dir, rest, _ := strings.Cut(f.Path, "/")
		files[i].Path = map[string]string{"systemd": "/etc/systemd/system/", "udev": "/etc/udev/rules.d/",
			"modprobe.d": "/etc/modprobe.d/"}[dir] + rest
	}
	return files, nil
}

// UnitName returns the name of a file of a lab in a directory that others have files in as well.
func UnitName(lab, suffix string) string { return "rackless-" + safeName(lab) + suffix }

// unit returns the unit of a job.
func (v *view) unit(j job) string {
	return v.page("unit", struct{ Name, Why, Description, After, Before string }{
		j.Name, j.Why, unitEscape(j.Description), j.After, j.Before,
	})
}

// hugepageMounts returns a mount for each size of pages that is not the kernel's default: libvirt
// takes pages of a size only from a mount of that size, and systemd mounts only the default one, at
// /dev/hugepages.
func (v *view) hugepageMounts() []Artifact {
	// The default of x86 and of arm64 with pages of 4 KiB is 2 MiB.
	standard := words.ValueOr(v.host.Memory.DefaultHuge, 2<<20)
	var mounts []Artifact
	for _, size := range v.plan.PageSizes() {
		if size == standard {
			continue
		}
		label := words.Either(size%(1<<30) == 0, fmt.Sprintf("%dG", size>>30), fmt.Sprintf("%dM", size>>20))
		mounts = append(mounts, text("systemd/dev-hugepages"+label+".mount", v.page("hugepages.mount", struct {
			Label, Before string
			KiB           uint64
		}{label, hypervisors, size >> 10})))
	}
	return mounts
}

// unitEscape returns text as the value of a setting that systemd expands: % begins a specifier, a
// backslash an escape or, at the end, a continued line (systemd.syntax(7), systemd.unit(5)).
func unitEscape(s string) string {
	return strings.NewReplacer("%", "%%", `\`, `\\`).Replace(oneLine(s))
}

// drivers returns the modules that would take the functions of the lab nodes on the host, sorted.
func (v *view) drivers() []string {
	all := lists.Flat(v.whole, func(a topology.PCIAddr) []string { return v.driversOf(a) })
	return lists.Distinct(all)
}

// driversOf returns the modules for a function: what the host says, else what is known about its vendor and class.
func (v *view) driversOf(a topology.PCIAddr) []string {
	d := v.host.Device(a)
	if d == nil {
		return nil
	}
	names := lists.Filter(append([]string{d.Driver}, d.Candidates...), isDriver)
	if len(names) > 0 || d.Class == nil || d.Vendor == nil {
		return names
	}
	switch class := d.Class.Base(); {
	case class == topology.ClassDisplay && *d.Vendor == topology.VendorNVIDIA:
		return []string{"nvidia", "nouveau"}
	case class == topology.ClassDisplay && *d.Vendor == topology.VendorAMD:
		return []string{"amdgpu"}
	case class == topology.ClassNetwork && *d.Vendor == topology.VendorMellanox:
		return []string{"mlx5_core"}
	case class == 0x04: // multimedia: the audio of a GPU
		return []string{"snd_hda_intel"}
	}
	return nil
}

// isDriver reports whether a name is that of a driver which uses a function itself. Drivers of PCI are named like their
// modules; anything else has no place in a file for modprobe.
func isDriver(name string) bool {
	switch name {
	case "", "vfio-pci", "vfio_pci", "pci-stub":
		return false
	}
	return strings.Trim(name, moduleLetters) == ""
}

const moduleLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// udevRules and modprobeFile are the names of the files below /etc.
func (v *view) udevRules() string    { return "10-rackless-" + v.lab + ".rules" }
func (v *view) modprobeFile() string { return "rackless-" + v.lab + ".conf" }

// earlyVFIO returns what keeps other drivers away from the functions while the machine boots.
func (v *view) earlyVFIO() []Artifact {
	if len(v.whole) == 0 {
		return nil
	}
	files := struct {
		Functions []topology.PCIAddr
		Drivers   []string
	}{v.whole, v.drivers()}
	return []Artifact{
		text("udev/"+v.udevRules(), v.page("vfio.rules", files)),
		text("modprobe.d/"+v.modprobeFile(), v.page("modprobe.conf", files)),
	}
}

// tuned returns a profile for tuned, for hosts where that service owns such settings.
func (v *view) tuned() []Artifact {
	if v.given.IsEmpty() {
		return nil
	}
	summary := strings.ReplaceAll("Host of lab "+oneLine(v.plan.Lab), "$", "") // $ begins a variable of tuned
	return []Artifact{text("tuned/rackless-"+v.lab+"/tuned.conf", v.page("tuned.conf", summary))}
}
