from undrift.cli import main

main()
