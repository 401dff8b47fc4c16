# rackless test: lab r740-one
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

resource "libvirt_domain" "vm" {
  name = "r740-one.vm"
  xml {
    xslt = file("${path.module}/vm.xsl")
  }
}
