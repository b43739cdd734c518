import { Buffer } from 'node:buffer';
import {
  addedAuthorities,
  javaStoreOf,
  OWN_FILE,
  ownBundle,
  type Authorities,
} from '../../../machine-network/trust/authorities.js';
import { OUR_NAME, subjectHash } from '../../../machine-network/trust/certificates.js';
import { STORES } from '../../../machine-network/trust/stores.js';
import { TRUST_FILES } from '../../../machine-network/trust/trust-files.js';
import type { BootConfiguration, BootTrust } from './configuration.js';

/** The part of the boot configuration of a sandbox that trusts more than its image does. */
export function bootTrust(authorities: Authorities): {
  trust: BootTrust;
  files: BootConfiguration['files'];
} {
  const { own } = authorities;
  const added = addedAuthorities(authorities);
  const texts = Buffer.from(added.map(({ text }) => text).join(''));
  const bundle = ownBundle(added);
  return {
    trust: {
      name: OUR_NAME,
      texts,
      bundles: STORES.bundles,
      anchors: STORES.anchors,
      hashed:
        own === undefined
          ? null
          : {
              directory: STORES.hashed,
              file: OWN_FILE,
              link: `${subjectHash(own)}.0`,
              content: Buffer.from(own),
            },
      whole: { path: TRUST_FILES.all, content: Buffer.from(bundle) },
    },
    files: [
      { path: TRUST_FILES.added, mode: 0o644, content: texts },
      // The disk is in the sandbox, so the service does not know the bundle of the image.
      { path: TRUST_FILES.java, mode: 0o644, content: javaStoreOf(bundle) },
    ],
  };
}
