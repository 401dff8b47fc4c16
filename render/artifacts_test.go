package render_test

import (
	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/render"
)

func init() { render.Artifacts = host.Artifacts }
