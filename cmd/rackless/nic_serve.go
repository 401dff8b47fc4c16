//go:build linux

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/serve"
	"github.com/rackless/rackless/vm"
)

type serveFlags struct {
	sockets, macs []string
	model         string
	fabric        string // a running lab, or a directory with a switch
	print         string // instead of serving
}

// maxServed is per process: each adapter takes a thread.
const maxServed = 64

func newNICServeCmd(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve --socket PATH",
		Short: "Emulate NICs for virtual machines that you start yourself",
		Args:  cli.ExactArgs(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			adapters, err := f.adapters()
			if err != nil {
				return cli.Usagef(cmd, "%v", err)
			}
			if f.print != "" {
				return a.show(servedText(f.print, adapters))
			}
			return a.serveNICs(cmd.Context(), f, adapters)
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&f.sockets, "socket", nil, "`PATH` of the socket for QEMU; again for more NICs on one switch")
	fs.StringArrayVar(&f.macs, "mac", nil, "`ADDRESS` of each NIC; else one that follows from the socket's path")
	fs.StringVar(&f.fabric, "fabric", "", "running `LAB` to join, or a directory whose switch other servers share")
	f.model = connectx.ConnectX5
	cli.EnumFlag(cmd, &f.model, "model", "", "model of the NICs", connectx.Models()...)
	cli.EnumFlag(cmd, &f.print, "print", "", "print the lines for this program, and end", servedFor...)
	cli.OfferWords(cmd, "mac")
	cli.Offer(cmd, "fabric", func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		labs, _ := a.completeLabs(cmd, nil, word)
		return labs, cobra.ShellCompDirectiveDefault
	})
	return cmd
}

func (f *serveFlags) adapters() (list []serve.Adapter, err error) {
	switch {
	case len(f.sockets) == 0:
		return nil, errors.New("want --socket PATH")
	case len(f.sockets) > maxServed:
		return nil, fmt.Errorf("want at most %d NICs, have %d", maxServed, len(f.sockets))
	case len(f.macs) > 0 && len(f.macs) != len(f.sockets):
		return nil, fmt.Errorf("%s for %s: want one for each, or none", words.Count(len(f.macs), "address"),
			words.Count(len(f.sockets), "socket"))
	}
	paths, addresses := map[string]bool{}, map[string]bool{}
	for i, socket := range f.sockets {
		x := serve.Adapter{Name: fmt.Sprint("nic", i), Model: f.model}
		if x.Socket, err = filepath.Abs(socket); err != nil {
			return nil, err
		}
		if len(x.Socket) > maxSocketPath {
			return nil, fmt.Errorf("--socket %s: a path of %d bytes; Linux takes %d", socket, len(x.Socket),
				maxSocketPath)
		}
		if _, err := os.Stat(filepath.Dir(x.Socket)); err != nil {
			return nil, fmt.Errorf("--socket %s: its directory: %w", socket, err)
		}
		x.MAC = addressOf(x.Socket)
		if len(f.macs) > 0 {
			x.MAC, err = net.ParseMAC(f.macs[i])
			if err != nil || len(x.MAC) != 6 || x.MAC[0]&1 != 0 {
				return nil, fmt.Errorf("--mac %s: want 6 bytes, not of a group, such as 02:00:00:00:00:01", f.macs[i])
			}
		}
		if paths[x.Socket] || addresses[x.MAC.String()] {
			return nil, fmt.Errorf("--socket %s: its path or its address %s is that of another NIC", socket, x.MAC)
		}
		paths[x.Socket], addresses[x.MAC.String()] = true, true
		list = append(list, x)
	}
	return list, nil
}

// maxSocketPath is in bytes.
const maxSocketPath = 107

// addressOf is the same at each start of a server, so that the guest keeps its settings.
func addressOf(socket string) net.HardwareAddr {
	host, _ := os.Hostname() // the path alone decides then
	sum := sha256.Sum256([]byte(host + "\x00" + socket))
	return append(net.HardwareAddr{2}, sum[:5]...) // locally administered
}

func (a *app) serveNICs(ctx context.Context, f serveFlags, adapters []serve.Adapter) error {
	dir, err := os.MkdirTemp("", "rackless-nic-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := serve.Config{Adapters: adapters, Dir: dir, Control: filepath.Join(dir, "fabric.sock"),
		Log: slog.New(slog.NewTextHandler(a.err, nil))}
	where := ""
	switch {
	case f.fabric == "":
	case !strings.Contains(f.fabric, "/"):
		r, other, err := a.openSwitch([]string{f.fabric})
		if err != nil {
			return err
		}
		c.Other, where = other, ", joined to lab "+r.Lab.Name
	default:
		control, err := filepath.Abs(filepath.Join(f.fabric, "fabric.sock"))
		if err != nil {
			return err
		}
		where = ", on the switch at " + f.fabric
		if c.Other, err = fabric.Dial(control); err != nil {
			if err := os.MkdirAll(f.fabric, 0o700); err != nil {
				return err
			}
			c.Other, c.Control = nil, control
		}
	}
	var text strings.Builder
	for _, x := range adapters {
		fmt.Fprintf(&text, "%s %s at %s%s (emulated)\n", x.Model, x.MAC, x.Socket, where)
	}
	text.WriteString("\n" + servedText("qemu", adapters) + "\nCtrl-C ends it; --print has the lines for other " +
		"programs.\n")
	c.Ready = func() { err = a.show(text.String()) }
	return cmp.Or(serve.Run(ctx, c), err)
}

var servedFor = []string{"qemu", "libvirt", "systemd"}

func servedText(program string, adapters []serve.Adapter) string {
	var b strings.Builder
	device := func(i int) (port, device string) {
		id := fmt.Sprint("rackless", i)
		return fmt.Sprintf("pcie-root-port,id=%s,chassis=%d", id, 200+i),
			vm.VFIOUser{ID: fmt.Sprint("rackless-nic", i), Bus: id, Socket: adapters[i].Socket}.Device()
	}
	switch program {
	case "qemu":
		b.WriteString("QEMU 10.1 or newer, machine q35; the memory (here 4 GiB) must be shared:\n\n" +
			"  -m 4G -object memory-backend-memfd,id=ram,size=4G,share=on -machine q35,memory-backend=ram")
		for i := range adapters {
			port, device := device(i)
			fmt.Fprintf(&b, " \\\n  -device %s \\\n  -device '%s'", port, device)
		}
		b.WriteString("\n")
	case "libvirt":
		b.WriteString("<!-- xmlns:qemu belongs to <domain>; QEMU's user must be allowed to use the sockets -->\n" +
			"<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n" +
			"  <memoryBacking>\n    <source type='memfd'/>\n    <access mode='shared'/>\n  </memoryBacking>\n" +
			"  <qemu:commandline>\n")
		for i := range adapters {
			port, device := device(i)
			for _, v := range []string{"-device", port, "-device", device} {
				fmt.Fprintf(&b, "    <qemu:arg value='%s'/>\n", xmlEscape(v))
			}
		}
		b.WriteString("  </qemu:commandline>\n</domain>\n")
	case "systemd":
		self, err := os.Executable()
		if err != nil {
			self = "/usr/local/bin/rackless"
		}
		fmt.Fprintf(&b,
			"[Unit]\nDescription=Emulated ConnectX NICs\n\n[Service]\nExecStart=%s nic serve --model %s",
			self, adapters[0].Model)
		for _, x := range adapters {
			fmt.Fprintf(&b, " --socket %s --mac %s", x.Socket, x.MAC)
		}
		b.WriteString("\nRestart=on-failure\n\n[Install]\nWantedBy=multi-user.target\n")
	}
	return b.String()
}

func xmlEscape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", "'", "&apos;").Replace(s)
}
