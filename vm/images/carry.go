package images

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/vm/image"
)

// A Carried is the JSON of rackless image export and import; see docs/json.md.
type Carried struct {
	File   string    `json:"file"`
	Digest string    `json:"digest,omitempty"` // of the exported file
	Signed bool      `json:"signed,omitempty"`
	Images []Arrived `json:"images"`
}

// An Arrived is an imported image.
type Arrived struct {
	Key  string `json:"key"`
	Name string `json:"name"`
	Dir  string `json:"dir"`
}

func (c *Carried) note(all []*image.Image) {
	c.Images = []Arrived{}
	for _, i := range all {
		c.Images = append(c.Images, Arrived{i.Key, i.Name, i.Dir})
	}
}

// Cargo selects a QEMU for one host and one node architecture, and images of such nodes.
type Cargo struct {
	File  string
	Arch  string   // as in Go; "": the host's
	Host  string   // "": this machine's
	Names []string // as in lab files
	Key   string   // private signing key, or ""
}

// Export writes images into a file, building missing ones.
func Export(ctx context.Context, g Cargo, o image.Options) (c Carried, err error) {
	var key ed25519.PrivateKey
	if g.Key != "" {
		if key, err = readKey(g.Key, image.ParsePrivateKey); err != nil {
			return c, err
		}
	}
	host := cmp.Or(g.Host, runtime.GOARCH)
	if err := image.CheckArch(host); err != nil {
		return c, err
	}
	arch := cmp.Or(g.Arch, host)
	kinds := []*image.Kind{image.QEMUOn(arch, host)}
	for _, name := range g.Names {
		k, err := image.Named(name, arch)
		if err != nil {
			return c, err
		}
		kinds = append(kinds, k)
	}
	var all []*image.Image
	for _, k := range kinds {
		img, err := k.Ensure(ctx, o)
		if err != nil {
			return c, err
		}
		all = append(all, img)
	}
	if o.Progress != nil {
		o.Progress("compress the images")
	}
	c = Carried{File: g.File, Signed: key != nil}
	c.note(all)
	err = atomicfile.Write(g.File, 0o644, func(w io.Writer) error {
		c.Digest, err = image.Export(ctx, w, host, all, key)
		return err
	})
	return c, err
}

// Import adds images from a file or a web address. digest, as of Export, or keyFile, the maker's public key, must
// verify them.
func Import(ctx context.Context, from, digest, keyFile string, o image.Options) (c Carried, err error) {
	trust := image.Trust{Digest: digest}
	if keyFile != "" {
		if trust.Key, err = readKey(keyFile, image.ParsePublicKey); err != nil {
			return c, err
		}
	}
	r, err := open(ctx, from)
	if err != nil {
		return c, err
	}
	defer r.Close()
	all, err := image.Import(ctx, r, o, trust)
	if err != nil {
		return c, fmt.Errorf("%s: %w", from, err)
	}
	c.File = from
	c.note(all)
	return c, nil
}

func readKey[K any](file string, parse func([]byte) (K, error)) (key K, err error) {
	text, err := userfile.Read(file, userfile.Text)
	if err != nil {
		return key, err
	}
	if key, err = parse(text); err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return key, err
}

func open(ctx context.Context, from string) (io.ReadCloser, error) {
	if !strings.HasPrefix(from, "https://") && !strings.HasPrefix(from, "http://") {
		return userfile.Open(from)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("%s: %s", from, answer.Status)
	}
	return answer.Body, nil
}
