import { Button, Table, Title } from "@mantine/core";
import { useState } from "react";
import type { Schemas } from "../api/client";
import { numberText } from "../parts/figures";
import { Scrolls } from "../parts/scrolls";

type Module = Schemas["ModuleFigures"];

/** By linear layer, and each module of it on demand. Norms are Frobenius norms. */
export function ModuleTable({ modules }: { modules: Module[] }) {
  const [each, setEach] = useState(false);
  const sites = [...new Set(modules.map(({ site }) => site))];
  return (
    <>
      <Title order={4} size="h5" mt="md" mb="xs">
        Rank and scale of {each ? "each module" : "its modules"}
      </Title>
      <Scrolls minWidth={640} what="Modules">
        <Table>
          <caption className="off-screen">Modules</caption>
          <Table.Thead>
            <Table.Tr>
              {[
                "Module",
                "Layers",
                "Rank",
                "Scale",
                "Norm of A",
                "Norm of B",
                "Change, at most",
                "Largest",
              ].map((title, index) => (
                <Table.Th key={title} scope="col" ta={index < 2 ? "start" : "end"}>
                  {title}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {each
              ? modules.map((one) => (
                  <ModuleRow key={`${one.layer} ${one.site}`} modules={[one]} layers={String(one.layer)} />
                ))
              : sites.map((site) => {
                  const these = modules.filter((one) => one.site === site);
                  return <ModuleRow key={site} modules={these} layers={`${these.length} layers`} />;
                })}
          </Table.Tbody>
        </Table>
      </Scrolls>
      <Button size="xs" variant="default" onClick={() => setEach(!each)} aria-expanded={each}>
        {each ? "By kind of module" : `Show each of ${modules.length}`}
      </Button>
    </>
  );
}

function ModuleRow({ modules, layers }: { modules: Module[]; layers: string }) {
  const figures: (keyof Omit<Module, "layer" | "site">)[] = [
    "rank",
    "scale",
    "a_norm",
    "b_norm",
    "delta_bound",
    "largest",
  ];
  return (
    <Table.Tr>
      <Table.Td>{modules[0]?.site}</Table.Td>
      <Table.Td>{layers}</Table.Td>
      {figures.map((figure) => (
        <Table.Td key={figure} ta="end" className="figures">
          {span(modules.map((one) => one[figure]))}
        </Table.Td>
      ))}
    </Table.Tr>
  );
}

function span(values: number[]): string {
  const [least, most] = [numberText(Math.min(...values)), numberText(Math.max(...values))];
  return least === most ? least : `${least} to ${most}`;
}
