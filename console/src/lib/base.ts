/** The path prefix of the service, which it names in the page. */
export const BASE_PATH = document.querySelector<HTMLMetaElement>('meta[name="base-path"]')?.content ?? '';
/** The address of the API, for other programs. */
export const API_URL = `${location.origin}${BASE_PATH}`;
