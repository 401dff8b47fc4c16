package render

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm/libvirttest"
)

// need skips the test without a program, or fails if tests must be complete.
func need(t *testing.T, program, debian string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%v: install Debian's %s", err, debian)
	}
	t.Skipf("no %s: install Debian's %s to run this test", program, debian)
	return ""
}

func TestSchemaOfLibvirtTakesDomains(t *testing.T) {
	t.Parallel()
	validate := need(t, "virt-xml-validate", "libvirt-clients")
	need(t, "xmllint", "libxml2-utils") // virt-xml-validate runs it
	dir := t.TempDir()
	for _, c := range append(domainCases(), domainCase{"largest", func(testing.TB) Input { return largest() }}) {
		artefacts, err := Domains(c.in(t))
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range artefacts {
			file := filepath.Join(dir, fmt.Sprintf("%s-%d.xml", c.name, i))
			if err := os.WriteFile(file, a.Data, 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(validate, file, "domain").CombinedOutput(); err != nil {
				t.Errorf("%s of %s: %v\n%s", a.Path, c.name, err, out)
			}
		}
	}
}

type daemon struct {
	*libvirttest.Daemon
	kvm bool
}

func startLibvirt(t *testing.T) *daemon {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a libvirt: not with -short")
	}
	for program, debian := range libvirttest.Programs {
		need(t, program, debian)
	}
	d, err := libvirttest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	_, err = d.Virsh("domcapabilities", "--virttype", "kvm", "--arch", "x86_64", "--machine", "q35")
	return &daemon{Daemon: d, kvm: err == nil}
}

// define returns libvirt's version of a domain. It does not start it.
func (d *daemon) define(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	file := filepath.Join(d.Dir, name+".xml")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Virsh("define", "--validate", file); err != nil {
		// libvirt looks for the firmware when a domain is defined since 9.2, and before that when it is started.
		if strings.Contains(err.Error(), "firmware") && os.Getenv("CI") == "" {
			t.Skipf("%v; install Debian's ovmf and qemu-efi-aarch64 to run this test", err)
		}
		t.Fatalf("%v\n%s", err, data)
	}
	out, err := d.Virsh("dumpxml", "--inactive", name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Virsh("undefine", name, "--nvram"); err != nil {
		t.Error(err)
	}
	return []byte(out)
}

func TestLibvirtKeepsThePlacement(t *testing.T) {
	t.Parallel()
	d := startLibvirt(t)
	if !d.kvm {
		t.Log("KVM is not usable here: the same domains are defined with type qemu")
	}
	for _, c := range append(domainCases(), domainCase{"largest", func(testing.TB) Input { return largest() }}) {
		in := c.in(t)
		artefacts, err := Domains(in)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range artefacts {
			node := in.Plan.Nodes[i].Name
			t.Run(c.name+"/"+node, func(t *testing.T) {
				data := a.Data
				if in.Host.System.Arch == "aarch64" {
					need(t, "qemu-system-aarch64", "qemu-system-arm")
					data = emulated(data)
				} else if !d.kvm {
					data = emulated(data)
				}
				back := d.define(t, lab.VMName(in.Plan.Lab, node), data)
				wrote, read := placementOf(t, readDomain(t, data)), placementOf(t, readDomain(t, back))
				if diff := cmp.Diff(wrote, read); diff != "" {
					t.Errorf("libvirt has another placement (-written +read back):\n%s", diff)
				}
				if missing := missing(treeOf(t, data), treeOf(t, back)); missing != "" {
					t.Errorf("libvirt dropped or changed: %s\nit has:\n%s", missing, back)
				}
			})
		}
	}
}

func emulated(data []byte) []byte {
	return bytes.Replace(data, []byte("<domain type='kvm'>"), []byte("<domain type='qemu'>"), 1)
}

type xmlNode struct {
	name     string
	attrs    map[string]string
	text     string
	children []*xmlNode
}

// treeOf has sizes in bytes and numbers in decimal.
func treeOf(t *testing.T, data []byte) *xmlNode {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	root := &xmlNode{}
	stack := []*xmlNode{root}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return root.children[0]
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			n := &xmlNode{name: e.Name.Space + " " + e.Name.Local, attrs: map[string]string{}}
			for _, a := range e.Attr {
				if a.Name.Space == "xmlns" || a.Name.Local == "xmlns" {
					continue
				}
				n.attrs[a.Name.Local] = a.Value
				if v, err := strconv.ParseUint(a.Value, 0, 64); err == nil {
					n.attrs[a.Name.Local] = strconv.FormatUint(v, 10)
				}
			}
			top := stack[len(stack)-1]
			top.children = append(top.children, n)
			stack = append(stack, n)
		case xml.EndElement:
			n := stack[len(stack)-1]
			n.text = strings.TrimSpace(n.text)
			n.sizes(t)
			stack = stack[:len(stack)-1]
		case xml.CharData:
			stack[len(stack)-1].text += string(e)
		}
	}
}

func (n *xmlNode) sizes(t *testing.T) {
	unit, ok := n.attrs["unit"]
	if !ok {
		return
	}
	for _, value := range []string{n.attrs["memory"], n.attrs["size"], n.text} {
		if value == "" {
			continue
		}
		v, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		n.attrs["bytes"] = strconv.FormatUint(inBytes(t, v, unit), 10)
	}
	delete(n.attrs, "unit")
	delete(n.attrs, "memory")
	delete(n.attrs, "size")
	n.text = ""
}

// missing returns the first part of a that b lacks, or "".
func missing(a, b *xmlNode) string {
	for name, want := range a.attrs {
		got := b.attrs[name]
		if name == "machine" { // libvirt replaces the alias
			got = want
		}
		if got != want {
			return fmt.Sprintf("%s %s=%q, have %q", a.name, name, want, got)
		}
	}
	if a.text != b.text && len(a.children) == 0 {
		return fmt.Sprintf("%s %q, have %q", a.name, a.text, b.text)
	}
	used := make([]bool, len(b.children))
next:
	for _, c := range a.children {
		nearest := fmt.Sprintf("%s in %s", c.name, a.name)
		for i, other := range b.children {
			if used[i] || other.name != c.name {
				continue
			}
			m := missing(c, other)
			if m == "" {
				used[i] = true
				continue next
			}
			nearest = m
		}
		return nearest
	}
	return ""
}
