import { closeSync, openSync } from 'node:fs';
import type { LinkedNamespace } from '../../../machine-network/namespace.js';

interface Place {
  /** An open descriptor of the namespace. */
  descriptor: number;
  /** The name of its link on the machine. */
  link: string;
  address: string;
  /** The address of the machine on the link. */
  machine: string;
}

/** The open namespace of a sandbox. Its virtual machine keeps it open too. */
export class HeldNamespace implements LinkedNamespace {
  readonly gateways: string[];
  readonly links: string[];
  readonly forwards = true;
  private isOpen = true;

  constructor(readonly place: Place) {
    this.gateways = [place.machine];
    this.links = [`${place.address}/32`];
  }

  /** Each use has a descriptor of its own: a closed number may be another file meanwhile. */
  enter = async <Result>(act: (descriptor: number) => Promise<Result>): Promise<Result> => {
    if (!this.isOpen) throw new Error('the sandbox has ended');
    const own = openSync(`/proc/self/fd/${this.place.descriptor}`, 'r');
    try {
      return await act(own);
    } finally {
      closeSync(own);
    }
  };

  isAlive = (): boolean => this.isOpen;

  close(): void {
    if (this.isOpen) closeSync(this.place.descriptor);
    this.isOpen = false;
  }
}
