package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const homepage = "https://github.com/rackless/rackless"

// formats has the programs that rackless recommends. No program is required, because up unpacks a QEMU on hosts without
// one.
var formats = map[string][]string{
	"deb": {"EMULATOR", "qemu-utils", "mmdebstrap"},
	"rpm": {"EMULATOR-core", "qemu-img"},
	"apk": nil, // has no recommendations
}

var emulators = map[string]string{"deb amd64": "qemu-system-x86", "deb arm64": "qemu-system-arm",
	"rpm amd64": "qemu-system-x86", "rpm arm64": "qemu-system-aarch64"}

func recommended(format, arch string) (names []string) {
	for _, name := range formats[format] {
		names = append(names, strings.Replace(name, "EMULATOR", emulators[format+" "+arch], 1))
	}
	return names
}

func (r *release) base(arch string) string {
	return fmt.Sprintf("rackless_%s_linux_%s", strings.TrimPrefix(r.version, "v"), arch)
}

func (r *release) packAll(arch, binary string, tree []file) (names []string, err error) {
	base := r.base(arch)
	write := func(name string, make func(io.Writer) error) {
		if err == nil {
			err = r.write(name, make)
		}
		names = append(names, name)
	}
	write(base+".tar.gz", func(w io.Writer) error { return r.archive(w, base, tree) })
	for format := range formats {
		write(base+"."+format, func(w io.Writer) error { return r.pack(w, format, arch, tree) })
	}
	write(base+".cdx.json", func(w io.Writer) error { return r.bom(w, binary) })
	return names, err
}

// write writes a file completely, or not at all.
func (r *release) write(name string, make func(io.Writer) error) error {
	var b bytes.Buffer
	if err := make(&b); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name), b.Bytes(), 0o644)
}

func (r *release) archive(w io.Writer, top string, tree []file) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, f := range tree {
		if err := t.WriteHeader(&tar.Header{Name: path.Join(top, f.path), Mode: int64(f.mode),
			Size: int64(len(f.content)), ModTime: r.time, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// pack writes the files first, because nfpm reads them from disk.
func (r *release) pack(w io.Writer, format, arch string, tree []file) error {
	dir, err := os.MkdirTemp(r.out, "tree")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var contents files.Contents
	for i, f := range tree {
		at := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(at, f.content, 0o600); err != nil {
			return err
		}
		c := &files.Content{Source: at, Destination: path.Join("/usr", f.path), FileInfo: &files.ContentFileInfo{
			Owner: "root", Group: "root", Mode: f.mode, MTime: r.time}}
		if strings.HasPrefix(f.path, docPath) && format == "rpm" {
			c.Type = files.TypeRPMDoc
		}
		contents = append(contents, c)
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "rackless", Arch: arch, Platform: "linux", Version: r.packageVersion(), Section: "admin",
		Priority: "optional", Maintainer: "The rackless authors <rackless@users.noreply.github.com>",
		Description: "RDMA labs of many nodes on one machine\n" +
			"Brings up emulated or passed-through nodes, proves every fact of them and\n" +
			"measures them; plans and prepares hosts for GPU and RDMA virtual machines.",
		Vendor: "rackless", Homepage: homepage, License: "Apache-2.0", DisableGlobbing: true, MTime: r.time,
		Overridables: nfpm.Overridables{Recommends: recommended(format, arch), Contents: contents,
			RPM: nfpm.RPM{BuildHost: "rackless", Summary: "RDMA labs of many nodes on one machine"}},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	p, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	return p.Package(info, w)
}

var tag = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[a-z]+\.\d+)?$`)

// packageVersion can be ordered by all package managers. A commit without a tag is 0.0.0 with its time, before every
// release.
func (r *release) packageVersion() string {
	if tag.MatchString(r.version) {
		return r.version[1:]
	}
	return "0.0.0~" + r.time.Format("20060102150405")
}

// bom has the CycloneDX format.
func (r *release) bom(w io.Writer, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	b := cdx.NewBOM()
	b.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: "rackless", Version: r.version, BOMRef: info.Path,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}}}
	list := []cdx.Component{{Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"), BOMRef: "std"}}
	for _, m := range info.Deps {
		url := "pkg:golang/" + m.Path + "@" + m.Version
		list = append(list, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
			PackageURL: url, BOMRef: url})
	}
	b.Components = &list
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b)
}

// checksums writes SHA-256 sums that sha256sum -c reads.
func (r *release) checksums(to string, names []string) error {
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(content), name)
	}
	return os.WriteFile(filepath.Join(r.out, to), []byte(b.String()), 0o644)
}
