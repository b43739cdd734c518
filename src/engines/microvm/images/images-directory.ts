/** Below the data directory. */
export const IMAGES_DIRECTORY = 'microvm/images';
