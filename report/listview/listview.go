// Package listview shows what there is on this machine as tables: labs, emulated hosts, images and templates.
package listview

import (
	"fmt"
	"strings"
	"time"

	"github.com/rackless/rackless/emulate"
	"github.com/rackless/rackless/images"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// Hosts has one row for each emulated host.
func Hosts(hosts []emulate.Item, now time.Time) *show.Grid {
	g := show.NewGrid("host", "profile", "state", "CPUs>", "nodes>", "memory>", "disk>", "accel", "since", "made",
		"kept")
	for _, h := range hosts {
		// A host that is not kept ends with the process that made it: a reader who wonders where it will go finds the
		// process here.
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

// Images has one row for each image, with its templates below it, and then the templates without an image.
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
		// The star marks what the next lab starts from. Other images serve labs that run, until they are pruned.
		mark := words.Either(i.Current, "*", " ")
		what := "image"
		if strings.HasPrefix(i.Name, "debian-") { // of full nodes
			what = i.Name
		}
		if i.QEMU != "" {
			what = "QEMU " + i.QEMU
		}
		what += words.If(i.Arch != "", " for "+i.Arch)
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

// Profiles has one row for each profile.
func Profiles(all []emulate.Machine) *show.Grid {
	g := show.NewGrid("profile", "CPUs>", "nodes>", "memory>", "GPUs>", "NICs>", "what")
	for _, p := range all {
		g.Add(p.Name, fmt.Sprint(p.CPUs), fmt.Sprint(p.NUMANodes), words.Bytes(p.Memory), fmt.Sprint(p.GPUs),
			fmt.Sprint(p.NICs), p.Description)
	}
	return g
}
