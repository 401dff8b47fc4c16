package emulate

import (
	"context"

	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/rack"
)

// LoginEnvironment is the environment of a login of root on a host; commands that the agent runs
// have none of it. RACKLESS_CACHE is where the second disk holds the image of nested nodes.
var LoginEnvironment = []string{
	"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "RACKLESS_CACHE=/opt/rackless/cache",
}

// BootFromImage returns what hosts boot from. It builds the image if the cache does not have it.
func BootFromImage(ctx context.Context, d rack.Dirs, p *rack.Progress) (Boot, error) {
	img, err := image.Host.Ensure(ctx, image.Options{Cache: d.Images(), Progress: p.Say, Watch: p.Watch})
	if err != nil {
		return Boot{}, err
	}
	return Boot{Key: img.Key, Disk: img.DiskPath(), Environment: LoginEnvironment}, nil
}
