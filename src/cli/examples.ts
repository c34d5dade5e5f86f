/** One example of each command, which its help and docs/commands.md show. */
import type { Command } from 'commander';

const AT = '--scheduler 10.0.0.1:7077';

/** By the name of the command, with that of its group before it. */
export const EXAMPLES: Readonly<Record<string, string>> = {
  scheduler: 'kintsugi scheduler --listen 10.0.0.1:7077 --ps 5 --code 4+1 --dir job --token-file token',
  ps: `kintsugi ps ${AT} --listen 10.0.0.2:7078 --memory 64GiB --token-file token`,
  replica: `kintsugi replica ${AT} --share 1/3 --tables users,items --token-file token`,
  gateway: `kintsugi gateway ${AT} --socket /run/kintsugi/gateway.sock`,
  reader: 'kintsugi reader',
  worker: `kintsugi worker ${AT} --data day_0.tsv day_1.tsv --test day_2.tsv --epochs 2`,
  supervise: `kintsugi supervise ps ${AT} --name rack-a --token-file token`,
  local: 'kintsugi local --data train.tsv --kill ps@50% --json report.json',
  status: `kintsugi status ${AT} --json`,
  dashboard: `kintsugi dashboard ${AT} --token-file token`,
  events: `kintsugi events ${AT} --follow`,
  top: `kintsugi top ${AT} --interval 1s`,
  doctor: `kintsugi doctor ${AT} --for 1m`,
  scale: `kintsugi scale ${AT} --ps 8`,
  drain: `kintsugi drain ps-3 ${AT}`,
  rebalance: `kintsugi rebalance ${AT} --dry-run`,
  restart: `kintsugi restart ${AT} --rolling`,
  plan: 'kintsugi plan --rows 1e9 --dim 64 --optimizer adagrad --code 8+2 --workers 50',
  autoscale: `kintsugi autoscale ${AT} --bounds ps=4..8 --dry-run`,
  operator: 'kintsugi operator --namespace training',
  'table list': `kintsugi table list --limit 1000 ${AT}`,
  'table show': `kintsugi table show items ${AT}`,
  'table delete': `kintsugi table delete items --keys keys.txt ${AT}`,
  'table evict': `kintsugi table evict items --dry-run --steps 1000 ${AT}`,
  'table drop': `kintsugi table drop items-of-last-year ${AT}`,
  'table set': `kintsugi table set items lr=0.01 ${AT}`,
  'checkpoint now': `kintsugi checkpoint now ${AT}`,
  'checkpoint set': `kintsugi checkpoint set s3://bucket/job --every 10m ${AT}`,
  'checkpoint list': 'kintsugi checkpoint list s3://bucket/job',
  'checkpoint verify': 'kintsugi checkpoint verify s3://bucket/job@12',
  'checkpoint compact': 'kintsugi checkpoint compact s3://bucket/job',
  'checkpoint delete': 'kintsugi checkpoint delete s3://bucket/job@12',
  forget: `kintsugi forget users --keys keys.txt ${AT}`,
  restore: `kintsugi restore s3://bucket/job --only-lost ${AT}`,
  export: `kintsugi export s3://models/ranker --every 20s --tables users,items ${AT}`,
  save: `kintsugi save /backups/monday ${AT}`,
  scrub: `kintsugi scrub ${AT} --repair`,
  load: `kintsugi load /backups/monday ${AT}`,
  import: `kintsugi import items.safetensors --table items --create --dim 64 ${AT}`,
  init: 'kintsugi init my-project',
  demo: 'kintsugi demo --rows 100000',
  bench: 'kintsugi bench recovery --json report.json',
};

/** Commands that do something, with their whole names: those of a group instead of the group. */
export function leavesOf(commands: readonly Command[], before = ''): { name: string; command: Command }[] {
  return commands.flatMap((command) => {
    const name = `${before}${command.name()}`;
    return command.commands.length > 0 ? leavesOf(command.commands, `${name} `) : [{ name, command }];
  });
}

/** Adds its example to the help of every command. */
export function addExamples(program: Command): void {
  for (const { name, command } of leavesOf(program.commands))
    command.addHelpText('after', `\nExample:\n  ${EXAMPLES[name]}`);
}
