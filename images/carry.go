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

	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/userfile"
)

// A Carried is what was written into a file, or taken from one. Its JSON is the output of rackless image export and
// import, see docs/json.md.
type Carried struct {
	File   string    `json:"file"`
	Digest string    `json:"digest,omitempty"` // of what export has written
	Signed bool      `json:"signed,omitempty"`
	Images []Arrived `json:"images"`
}

// An Arrived is an image that is in the cache.
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

// Export writes a QEMU and the images with the names of lab files, for nodes of an architecture, into a file, and makes
// those that the cache lacks. The QEMU runs on machines like this one. keyFile is the private key to sign with; it may
// be empty.
func Export(ctx context.Context, file, arch string, names []string, keyFile string,
	o image.Options) (c Carried, err error) {
	var key ed25519.PrivateKey
	if keyFile != "" {
		if key, err = readKey(keyFile, image.ParsePrivateKey); err != nil {
			return c, err
		}
	}
	kinds := []*image.Kind{image.QEMUOf(cmp.Or(arch, runtime.GOARCH))}
	for _, name := range names {
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
	c = Carried{File: file, Signed: key != nil}
	c.note(all)
	err = atomicfile.Write(file, 0o644, func(w io.Writer) error {
		c.Digest, err = image.Export(ctx, w, all, key)
		return err
	})
	return c, err
}

// Import takes images from a file, or from a web address, into the cache. digest is what Export has returned, keyFile
// the public key of the maker: one of them says that the images are to be believed.
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

// open opens a file, or what is at a web address.
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
