# rackless test: lab epyc-pair
# Untested: the provider was not at hand. It defines and starts the domains; the network "default",
# the disks that they name, and what the host needs (rackless prepare) have to be there.

terraform {
  required_providers {
    libvirt = {
      source  = "dmacvicar/libvirt"
      version = "~> 0.8.0" # 0.9 has no stylesheets
    }
  }
}

provider "libvirt" {
  uri = "qemu:///system"
}

resource "libvirt_domain" "vm00" {
  name = "epyc-pair.vm00"
  xml {
    xslt = file("${path.module}/vm00.xsl")
  }
}

resource "libvirt_domain" "vm01" {
  name = "epyc-pair.vm01"
  xml {
    xslt = file("${path.module}/vm01.xsl")
  }
}
