package inspect

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

// A bundle is a tar archive, compressed with gzip, of a machine's snapshot and of texts beside it, for a report of a
// fault:
//
//	bundle.json    version and contents
//	host/          the snapshot, unpacked
//	...            texts, such as plan.json
//
// Identities are replaced in all of them, and a name has the same substitute everywhere in a bundle.

// BundleSchema identifies the format of bundle.json. Keys may be added, but never removed or redefined.
const BundleSchema = "rackless/bundle/v1"

const (
	bundleFile = "bundle.json"
	bundleHost = "host"
)

// A Part is a text of a bundle, or a remark on a text that it lacks.
type Part struct {
	// Name is the path in the bundle. It is not replaced, so it must not tell anything.
	Name    string `json:"name"`
	About   string `json:"about"`             // a few words for the list of contents
	Bytes   int    `json:"bytes"`             // size, without compression
	Missing string `json:"missing,omitempty"` // why the bundle lacks it

	// Data is JSON if Name ends with .json or .jsonl, otherwise text.
	Data []byte `json:"-"`
}

// A BundleInfo is the content of bundle.json.
type BundleInfo struct {
	Schema   string `json:"schema"`
	Tool     string `json:"tool"` // the writing program with its version
	Contents []Part `json:"contents"`
}

// BundleOptions control the substitutes in the parts of a bundle.
type BundleOptions struct {
	Tool string
	// Public are texts that anyone can read, such as the documentation of rackless. The parts keep their words.
	Public []string
	// Names are names of people, labs and nodes. Each of their words is replaced, even if it is public.
	Names []string
	// Keys are keys of JSON documents. They are kept, so that a document can be read even if a node is called "server".
	Keys []string
}

// A Bundle is a bundle that is not written yet. It holds no identities.
type Bundle struct {
	Parts []Part

	host []tree.Entry
	tool string
}

// TakeBundle reads the machine at src, and replaces identities in its snapshot and in parts. Damaged JSON is Missing.
func TakeBundle(ctx context.Context, src Source, parts []Part, o BundleOptions) (*Bundle, error) {
	s, host, err := takeSnapshot(ctx, src)
	if err != nil {
		return nil, err
	}
	key := sha256.New()
	key.Write(s.key(src.FS))
	for _, p := range parts {
		fmt.Fprintf(key, "%q %q\n", p.Name, p.Data)
	}
	a := s.anonymizer(src.FS, key.Sum(nil))
	s.anonymizeWith(a)
	b := &Bundle{tool: o.Tool}
	if b.host, err = s.files(SnapshotOptions{Tool: o.Tool}); err != nil {
		return nil, err
	}
	names := slices.Clone(o.Names)
	for _, t := range host.Tenants {
		names = append(names, t.Name)
	}
	a = a.inProse(o, names)
	for _, p := range parts {
		// A reason may have names in it too.
		p.Missing = a.proseLine(p.Missing)
		if p.Missing == "" {
			ext := path.Ext(p.Name)
			if p.Data, err = a.proseText(p.Data, ext == ".json" || ext == ".jsonl"); err != nil {
				p.Missing = "it is damaged: " + a.proseLine(err.Error())
			}
		}
		b.add(p)
	}
	return b, nil
}

func (b *Bundle) add(p Part) {
	if p.Missing != "" {
		p.Data = nil
	}
	p.Bytes = len(p.Data)
	b.Parts = append(b.Parts, p)
}

// Add adds a text that was made from [Bundle.Host] alone, so that it has no identities.
func (b *Bundle) Add(p Part) { b.add(p) }

// Host reads the machine from the bundle, as a reader of the bundle will see it.
func (b *Bundle) Host(ctx context.Context) (*topology.Host, error) {
	var t tree.Builder
	if err := t.Add(b.host...); err != nil {
		return nil, err
	}
	o, err := openTree(t.Mem(), "bundle", "", "bundle")
	if err != nil {
		return nil, err
	}
	return o.Read(ctx)
}

// Info returns the list of contents, the machine first.
func (b *Bundle) Info() BundleInfo {
	host := Part{Name: bundleHost + "/", About: "everything that inspect reads of this machine"}
	for _, e := range b.host {
		host.Bytes += len(e.Data)
	}
	return BundleInfo{Schema: BundleSchema, Tool: b.tool, Contents: append([]Part{host}, b.Parts...)}
}

// Write writes the archive. The same bundle gives the same bytes.
func (b *Bundle) Write(w io.Writer) error {
	info, err := json.MarshalIndent(b.Info(), "", "  ")
	if err != nil {
		return err
	}
	all := []tree.Entry{{Name: bundleFile, Data: append(info, '\n')}, {Name: bundleHost, Mode: fs.ModeDir}}
	for _, e := range b.host {
		e.Name = bundleHost + "/" + e.Name
		all = append(all, e)
	}
	for _, p := range b.Parts {
		if p.Missing == "" {
			all = append(all, tree.Entry{Name: p.Name, Data: p.Data})
		}
	}
	z := gzip.NewWriter(w)
	return errors.Join(tree.WriteTar(z, all), z.Close())
}

// OpenBundle returns the files of the bundle at path, or nil if there is something else or nothing.
func OpenBundle(name string) (fs.FS, error) {
	// A pipe can be read only once, by those who take other things than bundles.
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil, nil
	}
	f, err := userfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head, err := readHead(f, tree.ArchiveHead)
	if err != nil || !tree.IsArchive(head) {
		return nil, err
	}
	files, err := tree.ReadArchive(io.MultiReader(bytes.NewReader(head), f), tree.Limits{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err := files.Bytes(bundleFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var info BundleInfo
	if err == nil {
		err = json.Unmarshal(text, &info)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %s: %w", name, bundleFile, err)
	case info.Schema != BundleSchema:
		return nil, fmt.Errorf("%s: %s: schema %q: want %q: a newer rackless may know it", name, bundleFile,
			info.Schema, BundleSchema)
	}
	return files, nil
}

// BundlePart returns a part of the bundle at path. The data are nil without an error if there is no bundle.
func BundlePart(bundle, part string) ([]byte, error) {
	files, err := OpenBundle(bundle)
	if files == nil || err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(files, part)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: the bundle has no %s%s", bundle, part, missing(files, part))
	}
	return data, err
}

// missing returns the reason that a bundle lacks a part, after a colon, or "".
func missing(files fs.FS, part string) string {
	var info BundleInfo
	text, err := fs.ReadFile(files, bundleFile)
	if err != nil || json.Unmarshal(text, &info) != nil {
		return ""
	}
	for _, p := range info.Contents {
		if p.Name == part && p.Missing != "" {
			return ": " + strings.TrimSpace(p.Missing)
		}
	}
	return ""
}
