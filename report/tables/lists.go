//go:build linux

package tables

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/vm/emulate"
	"github.com/rackless/rackless/vm/images"
)

// Hosts returns a table with one row for each emulated host.
func Hosts(hosts []emulate.Item, now time.Time) *show.Grid {
	g := show.NewGrid("host", "profile", "state", "CPUs>", "nodes>", "memory>", "disk>", "accel", "since", "made",
		"kept")
	for _, h := range hosts {
		// A host that is not kept ends with the process that created it.
		since, made, kept := "", "booted", fmt.Sprintf("no, goes with process %d", h.Owner)
		if h.Booted != nil {
			since = words.Ago(now.Sub(*h.Booted))
		}
		if h.Cloned {
			made = "cloned"
		}
		if h.Keep {
			kept = "yes"
		}
		g.Add(h.Name, h.Profile, h.State, fmt.Sprint(h.CPUs), fmt.Sprint(h.NUMANodes), words.Bytes(h.Memory),
			words.Bytes(h.DiskBytes), h.Accel, since, made, kept)
	}
	return g
}

// Images returns images with their templates, then templates without an image.
func Images(out images.Listing, now time.Time) *show.Grid {
	g := show.NewGrid("key", "what", "state", "kernel", "shape", "size>", "made")
	age := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return words.Ago(now.Sub(*t)) + " ago"
	}
	template := func(t images.Template) {
		shape := ""
		if t.CPUs > 0 {
			shape = fmt.Sprintf("%s, %s, %s, %s", words.Count(t.CPUs, "CPU"), words.Bytes(t.Memory),
				words.Count(t.NICs, "NIC"), t.Accelerator)
		}
		g.Add("  "+t.Key, "template", t.State, "", shape, words.Bytes(t.Bytes), age(t.Made))
	}
	for _, i := range out.Images {
		// The star marks the image of the next lab. Others serve running labs until they are pruned.
		mark := " "
		if i.Current {
			mark = "*"
		}
		what := "image"
		if strings.HasPrefix(i.Name, "debian-") { // of full nodes
			what = i.Name
		}
		if i.QEMU != "" {
			what = "QEMU " + i.QEMU
		}
		if i.Arch != "" {
			what += " for " + i.Arch
		}
		g.Add(mark+" "+i.Key, what, i.State, i.Kernel, i.Release, words.Bytes(i.Bytes), age(i.Built))
		for _, t := range i.Templates {
			template(t)
		}
	}
	for _, t := range out.Templates {
		template(t)
	}
	return g
}

// Profiles returns a table with one row for each profile.
func Profiles(all []emulate.Machine) *show.Grid {
	g := show.NewGrid("profile", "CPUs>", "nodes>", "memory>", "GPUs>", "NICs>", "what")
	for _, p := range all {
		g.Add(p.Name, fmt.Sprint(p.CPUs), fmt.Sprint(p.NUMANodes), words.Bytes(p.Memory), fmt.Sprint(p.GPUs),
			fmt.Sprint(p.NICs), p.Description)
	}
	return g
}

// Labs returns a row for each node. Its NICs share a field.
func Labs(labs []rack.Description, now time.Time) *show.Grid {
	g := show.NewGrid("lab", "node", "state", "address", "rdma", "gid", "driver", "accel", "since", "made")
	for _, l := range labs {
		for _, n := range l.Nodes {
			var addrs, devs, gids []string
			for _, nic := range n.NICs {
				addrs = append(addrs, nic.Address)
				if nic.RDMA != "" {
					devs = append(devs, nic.RDMA)
				}
				if nic.GID != nil {
					gids = append(gids, strconv.Itoa(*nic.GID))
				}
			}
			// A node that was never started has neither.
			since, made := "", ""
			if n.Started != nil {
				since, made = words.Ago(now.Sub(*n.Started)), "booted"
				if n.Cloned {
					made = "cloned"
				}
			}
			g.Add(l.Name, n.Name, n.State, strings.Join(addrs, ","), strings.Join(devs, ","), strings.Join(gids, ","),
				l.Driver, l.Accel, since, made)
		}
	}
	return g
}

// LabNotes returns a line for a lab's shared /home, and for each fault of labs and nodes with its remedy.
func LabNotes(labs []rack.Description) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, l := range labs {
		if l.Home != "" {
			add("lab %s: /home of its full nodes is %s, and goes with the lab", l.Name, l.Home)
		}
		if l.Switch == string(rack.SwitchDead) {
			add("lab %s: its switch is not running: rackless up with its lab file starts it again", l.Name)
		} else if !l.Ready {
			add("lab %s: not ready: up works on it, or was killed; rackless up with its lab file "+
				"continues", l.Name)
		}
		for _, n := range l.Nodes {
			switch {
			case n.Error != "":
				add("%s/%s: %s", l.Name, n.Name, n.Error)
			case n.State == string(rack.NoAdapter):
				add("%s/%s: it has lost its ConnectX or a GPU, as the lab's daemon ended or the connection to it: "+
					"rackless up with the lab's file starts it again", l.Name, n.Name)
			case n.State == "dead":
				add("%s/%s: its process %d is gone: rackless up with the lab's file starts it again",
					l.Name, n.Name, n.PID)
			}
		}
	}
	return lines
}
