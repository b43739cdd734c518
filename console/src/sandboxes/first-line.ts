import { API_URL } from '../lib/base';

/** Creates the first sandbox of an organization. */
export const FIRST_LINE = `curl ${API_URL}/v1/sandboxes?start=true -H "authorization: Bearer $KEY" -H 'content-type: application/json' -d '{"name":"first","image":{"type":"oci","reference":"python:3.12"}}'`;
