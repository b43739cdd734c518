import { Link } from 'wouter-preact';
import { API_URL } from '../lib/base';
import { CodeLines } from '../parts/copy';

const CREATE = `curl ${API_URL}/v1/sandboxes?start=true -H "authorization: Bearer $KEY" -H 'content-type: application/json' -d '{"name":"first","image":{"type":"oci","reference":"python:3.12"}}'`;

/** For an organization without a sandbox: the next steps. */
export function FirstSteps() {
  return (
    <section class="panel" aria-labelledby="first-steps">
      <h2 id="first-steps">First steps</h2>
      <ol class="steps">
        <li>
          <Link href="/sandboxes?create=form">Create a sandbox</Link>: an isolated computer from an image. It
          starts in about a second, and has a terminal, files and a log here.
        </li>
        <li>
          <Link href="/keys?create=form">Create a key</Link> for your program, with the scopes that it needs.
        </li>
        <li>
          Send the same request from your program, with the key in the variable KEY:
          <CodeLines text={CREATE} of="command" />
        </li>
      </ol>
    </section>
  );
}
