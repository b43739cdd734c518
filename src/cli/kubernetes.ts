import { Command, InvalidArgumentError, Option } from 'commander';
import { stringify } from 'yaml';
import { NAMESPACE_CHOICES, type NamespaceChoice } from '../engines/kubernetes/namespace-choices.js';
import { print } from './command.js';
import { common, OperatorCommand } from './operator-command.js';
import { json } from './options.js';

interface ManifestFlags {
  namespace: string;
  name: string;
  namespaces: NamespaceChoice;
  nodes: boolean;
  volumes: boolean;
  activity?: true;
  json?: true;
}

export function kubernetesCommand(): Command {
  return new Command('kubernetes')
    .description('prepare a Kubernetes cluster for sandboxes')
    .addCommand(manifestCommand());
}

function manifestCommand(): Command {
  return new OperatorCommand('manifest')
    .description(
      'print the namespace, the service account and the roles of the service, for "kubectl apply -f -"',
    )
    .addOption(
      new Option('--namespace <name>', 'namespace of the sandboxes').default('sandkeep').argParser(label),
    )
    .addOption(
      new Option('--name <name>', 'name of the service account').default('sandkeep').argParser(label),
    )
    .addOption(
      new Option('--namespaces <choice>', 'the value of --kubernetes-namespaces')
        .choices(NAMESPACE_CHOICES)
        .default('shared'),
    )
    .option(
      '--no-nodes',
      'without the right to list nodes: the capacity is unknown, and a lost node ends its runs when the cluster removes their Pods',
    )
    .option('--no-volumes', 'without the right to create claims of storage: named volumes are refused')
    .option(
      '--activity',
      'with nodes/proxy, for idle_timeout_secs; the right lets its holder into every container of the cluster',
    )
    .addOption(common(json()))
    .action(async (flags: ManifestFlags) => {
      const { manifest } = await import('../engines/kubernetes/manifest.js');
      const items = manifest({ ...flags, activity: flags.activity ?? false });
      const list = { apiVersion: 'v1', kind: 'List', items };
      print(
        flags,
        list,
        items
          .map((item) => stringify(item))
          .join('---\n')
          .trimEnd(),
      );
    });
}

/** Part of names of other objects. */
function label(text: string): string {
  if (/^[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$/.test(text)) return text;
  throw new InvalidArgumentError('It takes up to 52 lower-case letters, digits and hyphens.');
}
