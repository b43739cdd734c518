import { DEFAULT_CONFIG } from '../src/config/options.js';
import { MAX_DISK_IMAGES } from '../src/engines/microvm/disks/disk-image.js';
import { MAX_FOLDERS } from '../src/engines/microvm/volumes/open-folders.js';
import { BASES } from '../src/engines/microvm/images/vm-images.js';
import { MAX_TREE_BYTES } from '../src/engines/microvm/images/layer-tree.js';
import { MAX_REFERENCES } from '../src/registry/stored-access.js';
import {
  CONFIG_TIMEOUT_MS,
  MAX_DOCUMENT_BYTES,
  MAX_ENTRYPOINT_BYTES,
  MAX_FILES,
  MAX_LAYERS,
  MAX_REDIRECTS,
  MAX_VOLUMES,
  PULL_TIMEOUT_MS,
  PULLS,
  SHARE_AFTER_MS,
  SHARE_OF_ORG,
  SLOW_PULL,
  WAITING_PULLS,
} from '../src/registry/limits.js';
import { bytes, number, time, type Limit } from './limit-values.js';

export const IMAGE_LIMITS = {
  sandbox: [
    { limit: 'time of an image pull', value: time(PULL_TIMEOUT_MS), beyond: 'the start fails' },
    {
      limit: 'time of a read of an entrypoint, for Kubernetes',
      value: time(CONFIG_TIMEOUT_MS),
      beyond: 'the start fails',
    },
    {
      limit: 'an entrypoint that is read, for Kubernetes',
      value: bytes(MAX_ENTRYPOINT_BYTES),
      beyond: 'the start fails',
    },
    {
      limit: `time for ${bytes(SLOW_PULL.bytes)} of a pull while others wait`,
      value: time(SLOW_PULL.ms),
      beyond: 'the start fails',
    },
    {
      limit: 'wait of an organization without a pull, until it gets a place of the one with the most',
      value: time(SHARE_AFTER_MS),
      beyond: 'the slowest pull of that one begins again',
    },
    {
      limit: 'size of a pulled image, uncompressed',
      value: bytes(DEFAULT_CONFIG.imageMaxMib * 1_024 * 1_024),
      option: 'imageMaxMib',
      beyond: 'the start fails',
    },
    {
      limit: 'layers, entries and volumes of a pulled image',
      value: [MAX_LAYERS, MAX_FILES, MAX_VOLUMES].map(number).join(', '),
      beyond: 'the start fails',
    },
    {
      limit: 'a manifest, an index or a configuration of a pulled image',
      value: bytes(MAX_DOCUMENT_BYTES),
      beyond: 'the start fails',
    },
    {
      limit: 'memory for the names, owners and attributes of an image of microVMs',
      value: bytes(MAX_TREE_BYTES),
      beyond: 'the image is refused',
    },
    { limit: 'volumes that a microVM mounts', value: number(MAX_FOLDERS), beyond: 'the start fails' },
    { limit: 'disk images of a microVM', value: number(MAX_DISK_IMAGES), beyond: 'the start fails' },
    { limit: 'redirects of a registry', value: number(MAX_REDIRECTS), beyond: 'the start fails' },
  ],
  organization: [
    {
      limit: 'pulled images that its sandboxes hold, stopped ones too, and its snapshots',
      value: `1/${number(1 / SHARE_OF_ORG)} of the disk of the engine`,
      option: 'orgImagesMaxMib',
      beyond: 'the start fails',
    },
    { limit: 'pulls of images at once', value: number(PULLS.each), beyond: 'the starts wait' },
    {
      limit: 'starts that wait for a pull',
      value: number(WAITING_PULLS.each),
      beyond: 'the start fails',
    },
    {
      limit: 'images with a proof of access',
      value: number(MAX_REFERENCES),
      beyond: 'the oldest proof is forgotten, and made again when it is needed',
    },
  ],
  process: [
    {
      limit: 'bases of microVMs that are made at once, and those of an organization',
      value: [BASES.total, BASES.each].map(number).join(', '),
      beyond: 'the starts wait',
    },
    { limit: 'pulls of images at once', value: number(PULLS.total), beyond: 'the starts wait' },
    {
      limit: 'starts that wait for a pull',
      value: number(WAITING_PULLS.total),
      beyond: 'the start fails',
    },
  ],
} as const satisfies Record<string, Limit[]>;
