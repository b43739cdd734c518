import type { UrlState } from '../lib/url-state';

const SORTS = ['-created_at', 'created_at', 'name'] as const;

/** The order in the address. Default: newest first. */
export const sortOf = (url: UrlState) => SORTS.find((sort) => sort === url.get('sort')) ?? '-created_at';
