# rackless test: lab r740-eight
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
  name = "r740-eight.vm00"
  xml {
    xslt = file("${path.module}/vm00.xsl")
  }
}

resource "libvirt_domain" "vm01" {
  name = "r740-eight.vm01"
  xml {
    xslt = file("${path.module}/vm01.xsl")
  }
}

resource "libvirt_domain" "vm02" {
  name = "r740-eight.vm02"
  xml {
    xslt = file("${path.module}/vm02.xsl")
  }
}

resource "libvirt_domain" "vm03" {
  name = "r740-eight.vm03"
  xml {
    xslt = file("${path.module}/vm03.xsl")
  }
}

resource "libvirt_domain" "vm04" {
  name = "r740-eight.vm04"
  xml {
    xslt = file("${path.module}/vm04.xsl")
  }
}

resource "libvirt_domain" "vm05" {
  name = "r740-eight.vm05"
  xml {
    xslt = file("${path.module}/vm05.xsl")
  }
}

resource "libvirt_domain" "vm06" {
  name = "r740-eight.vm06"
  xml {
    xslt = file("${path.module}/vm06.xsl")
  }
}

resource "libvirt_domain" "vm07" {
  name = "r740-eight.vm07"
  xml {
    xslt = file("${path.module}/vm07.xsl")
  }
}
